"""Amazon SQS and SNS for Python: confirmed publishing, ordered consuming, leases, and the services
themselves in process.

Names are imported when they are first used, so that `import pumphouse` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pumphouse.account import Account as Account
    from pumphouse.addressing import Topic as Topic
    from pumphouse.app import App as App
    from pumphouse.backend import Backend as Backend
    from pumphouse.backoff import RetryPolicy as RetryPolicy
    from pumphouse.clock import Clock as Clock
    from pumphouse.clock import RealClock as RealClock
    from pumphouse.clock import VirtualClock as VirtualClock
    from pumphouse.errors import ConfigError as ConfigError
    from pumphouse.errors import LeaseLostError as LeaseLostError
    from pumphouse.errors import NetworkError as NetworkError
    from pumphouse.errors import OutcomeUnknownError as OutcomeUnknownError
    from pumphouse.errors import PumphouseError as PumphouseError
    from pumphouse.errors import QueueDoesNotExist as QueueDoesNotExist
    from pumphouse.errors import RefusedError as RefusedError
    from pumphouse.errors import ServiceError as ServiceError
    from pumphouse.errors import ThrottledError as ThrottledError
    from pumphouse.errors import TransientError as TransientError
    from pumphouse.errors import UsageError as UsageError
    from pumphouse.http import HttpBackend as HttpBackend
    from pumphouse.http import Keys as Keys
    from pumphouse.http import connect as connect
    from pumphouse.model import Message as Message
    from pumphouse.model import Receipt as Receipt
    from pumphouse.notifications import subscribe_queue_to_topic as subscribe_queue_to_topic
    from pumphouse.publishers import Outgoing as Outgoing
    from pumphouse.publishers import Publisher as Publisher
    from pumphouse.publishers import To as To
    from pumphouse.router import Router as Router
    from pumphouse.sink import Sink as Sink
    from pumphouse.sns_endpoint import SnsEndpoint as SnsEndpoint
    from pumphouse.subscriber.injection.markers import Depends as Depends
    from pumphouse.subscriber.injection.markers import Header as Header
    from pumphouse.subscriber.injection.markers import State as State
    from pumphouse.subscriber.outcomes import Ack as Ack
    from pumphouse.subscriber.outcomes import Drop as Drop
    from pumphouse.subscriber.outcomes import Reject as Reject
    from pumphouse.subscriber.outcomes import Reply as Reply
    from pumphouse.subscriber.outcomes import Retry as Retry
    from pumphouse.subscriber.outcomes import Settle as Settle
    from pumphouse.subscriber.queue import Queue as Queue
    from pumphouse.transport import Lease as Lease
    from pumphouse.transport import LeaseTransport as LeaseTransport
    from pumphouse.transport import PriorityTransport as PriorityTransport

# public name: the module that defines it
_WHERE = {
    "Account": "account",
    "Ack": "subscriber.outcomes",
    "App": "app",
    "Backend": "backend",
    "Clock": "clock",
    "ConfigError": "errors",
    "Depends": "subscriber.injection.markers",
    "Drop": "subscriber.outcomes",
    "Header": "subscriber.injection.markers",
    "HttpBackend": "http",
    "Keys": "http",
    "Lease": "transport",
    "LeaseLostError": "errors",
    "LeaseTransport": "transport",
    "Message": "model",
    "NetworkError": "errors",
    "Outgoing": "publishers",
    "OutcomeUnknownError": "errors",
    "PriorityTransport": "transport",
    "Publisher": "publishers",
    "PumphouseError": "errors",
    "Queue": "subscriber.queue",
    "QueueDoesNotExist": "errors",
    "RealClock": "clock",
    "Receipt": "model",
    "RefusedError": "errors",
    "Reject": "subscriber.outcomes",
    "Reply": "subscriber.outcomes",
    "Retry": "subscriber.outcomes",
    "RetryPolicy": "backoff",
    "Router": "router",
    "ServiceError": "errors",
    "Settle": "subscriber.outcomes",
    "Sink": "sink",
    "SnsEndpoint": "sns_endpoint",
    "State": "subscriber.injection.markers",
    "ThrottledError": "errors",
    "To": "publishers",
    "Topic": "addressing",
    "TransientError": "errors",
    "UsageError": "errors",
    "VirtualClock": "clock",
    "connect": "http",
    "subscribe_queue_to_topic": "notifications",
}

__version__ = "0.1.0"
__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> object:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module 'pumphouse' has no attribute {name!r}")
    value = getattr(import_module(f"pumphouse.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
