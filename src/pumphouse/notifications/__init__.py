"""What SNS delivers: the documents, their signatures, and the subscriptions that bring them.

`document.py` reads an envelope and opens it; `reading.py` decides for a queue which of its messages
are envelopes; `signatures.py` verifies; `subscribing.py` subscribes a queue. The endpoint that
receives over HTTP is `sns_endpoint.py`, and publishing is `pumphouse.sink`.
"""

from pumphouse.notifications.document import Notification
from pumphouse.notifications.signatures import SignatureError, Verifier
from pumphouse.notifications.subscribing import subscribe_queue_to_topic

__all__ = ["Notification", "SignatureError", "Verifier", "subscribe_queue_to_topic"]
