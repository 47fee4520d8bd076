"""Leases as a public transport: publish, claim, ack, nack and extend over FIFO queues.

`LeaseTransport` is one queue; `PriorityTransport` is one for each level of priority. The sync twins
are in `pumphouse.sync`, and harel's shape of both in `pumphouse.integrations.harel`.
"""

from pumphouse.transport.codecs import Codec, codec_for
from pumphouse.transport.lease import Lease
from pumphouse.transport.lease_transport import LeaseTransport
from pumphouse.transport.priority import Levels, LocalLevels, PriorityTransport

__all__ = [
    "Codec",
    "Lease",
    "LeaseTransport",
    "Levels",
    "LocalLevels",
    "PriorityTransport",
    "codec_for",
]
