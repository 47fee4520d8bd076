"""What a check finds: `Finding`, and the list of everything that can be found.

Each code has one severity and one meaning, for good: programs filter by them. What is looked at to
find them is the business of the rules (`queue_rules.py` and the others beside it).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

Severity = Literal["error", "warning", "info"]
"""`error`: it does not start, or it loses or doubles work. `warning`: it does, sooner or later.
`info`: worth knowing, and right as it is for some."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found: where (`queue`, or a topic), what, and what to do about it."""

    code: str
    severity: Severity
    queue: str
    message: str
    remedy: str


class Kind(NamedTuple):
    """What a code stands for."""

    severity: Severity
    title: str


KINDS: dict[str, Kind] = {
    # the queue and the way to it
    "PH101": Kind("error", "the queue is missing"),
    "PH102": Kind("error", "a call that the start makes is not permitted"),
    "PH103": Kind("error", "the queue's access policy denies what the service does"),
    "PH104": Kind("warning", "short polling"),
    "PH105": Kind("info", "an encryption key that has to be permitted"),
    "PH106": Kind("info", "a delay that retries do not have"),
    "PH107": Kind("info", "something could not be looked at"),
    "PH108": Kind("warning", "half of high throughput"),
    # dead letters
    "PH201": Kind("error", "the dead-letter queue is missing"),
    "PH202": Kind("error", "the dead-letter queue is of the other kind"),
    "PH203": Kind("error", "the dead-letter queue is in another account or region"),
    "PH204": Kind("error", "the redrive policy is not as declared, and the start refuses it"),
    "PH205": Kind("warning", "the start takes the dead letters away from another queue"),
    "PH206": Kind("error", "maxReceiveCount is below the attempts"),
    "PH207": Kind("warning", "maxReceiveCount leaves no room for receives that are no attempts"),
    "PH208": Kind("info", "the start writes another maxReceiveCount"),
    "PH209": Kind("warning", "nothing ends a message that always fails"),
    "PH210": Kind("warning", "dead letters may expire as they arrive"),
    "PH211": Kind("error", "the dead-letter queue does not allow this source"),
    "PH212": Kind("error", "dead letters go round in a circle"),
    "PH213": Kind("warning", "the dead-letter queue takes smaller messages"),
    # leases and times
    "PH301": Kind("error", "a handler may take longer than its lease"),
    "PH302": Kind("warning", "nothing bounds a handler whose lease is not extended"),
    "PH303": Kind("error", "the lease is over before the batch is gathered"),
    "PH304": Kind("info", "gathering a batch costs extensions"),
    "PH305": Kind("error", "a visibility timeout of 0"),
    "PH306": Kind("error", "the time-out is longer than a message can be held"),
    "PH307": Kind("info", "a stop is shorter than the time-out"),
    "PH308": Kind("warning", "a stop is shorter than the time-out of a handler in a thread"),
    "PH309": Kind("error", "messages expire before their attempts are used up"),
    # publishing
    "PH401": Kind("error", "the queue that is published to is missing"),
    "PH402": Kind("error", "the topic that is published to is missing"),
    "PH403": Kind("warning", "replies to a FIFO destination without a group"),
    "PH404": Kind("warning", "larger messages are sent than are taken"),
    "PH405": Kind("info", "content-based deduplication has no effect"),
    "PH406": Kind("info", "what is published is not what the handler takes"),
    "PH407": Kind("info", "replies say where they go, and nothing says it before"),
    # topics
    "PH501": Kind("error", "envelopes where none are expected, or none where they are"),
    "PH502": Kind("error", "the queue does not let the topic send"),
    "PH503": Kind("error", "the topic can't use the queue's key"),
    "PH504": Kind("warning", "no topic is subscribed"),
    # options without effect
    "PH601": Kind("info", "a priority without effect"),
    "PH602": Kind("info", "a partition key without effect"),
}


def found(code: str, queue: str, message: str, remedy: str) -> Finding:
    """A finding of a code of the list."""
    return Finding(code, KINDS[code].severity, queue, message, remedy)
