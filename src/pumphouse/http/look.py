"""Looking at the messages of a queue that `pumphouse serve` has, without receiving them.

AWS has no such call, and no other emulator this one; where it is not answered, nothing was done.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from pumphouse.backend import Backend
from pumphouse.errors import NetworkError
from pumphouse.http.fetch import fetch
from pumphouse.protocol.names import is_aws_host
from pumphouse.protocol.operations import GetQueueAttributes, ReceivedMessage

MAX_BYTES = 64 * 1024 * 1024


async def look_at_served(
    backend: Backend, queue_url: str, number: int
) -> list[ReceivedMessage] | None:
    """Up to `number` visible messages, or None where the queue's endpoint can't be looked into."""
    parts = urlsplit(queue_url)
    host = parts.hostname or ""
    if not host or is_aws_host(host):
        return None
    answer = await backend.execute(GetQueueAttributes(queue_url, ["QueueArn"]))
    arn = answer.attributes.get("QueueArn")
    url = f"{parts.scheme}://{parts.netloc}/_pumphouse/messages/{arn}/{number}"
    try:
        return msgspec.json.decode(await fetch(url, MAX_BYTES), type=list[ReceivedMessage])
    except (NetworkError, msgspec.DecodeError):
        return None
