"""Publishing: `Sink` and what it is made of.

`sink.py` has the public class and the way of a message; `options.py` its options; `outgoing.py` and
`composer.py` what is sent; `schedule.py`, `admission.py`, `entry.py` and `chains.py` the rules of
who leaves when, as plain code; `batcher.py` runs them; `dead_letters.py` keeps what can't be sent.
"""

from pumphouse.confirmation import classify_error
from pumphouse.sink.options import SinkOptions, validate_options
from pumphouse.sink.outgoing import Draft
from pumphouse.sink.sink import BatchAnswered, Sink

__all__ = [
    "BatchAnswered",
    "Draft",
    "Sink",
    "SinkOptions",
    "classify_error",
    "validate_options",
]
