"""From what a user calls a queue (a name, a URL, an ARN) to the URL that AWS wants."""

from __future__ import annotations

from collections.abc import Callable

from pumphouse.backend import Backend, R
from pumphouse.errors import QueueDoesNotExist, UsageError
from pumphouse.protocol.names import (
    is_arn,
    is_queue_name,
    is_queue_url,
    parse_queue_arn,
    safe_queue_name,
)
from pumphouse.protocol.operations import GetQueueUrl, Operation


def check_queue(queue: str) -> str:
    """The reference as it will be used: a name's forbidden characters become `-`.

    Raises `UsageError` for an empty reference, a name that is too long, or a broken ARN.
    """
    if not isinstance(queue, str) or not queue.strip():
        raise UsageError("a queue needs a name, a URL or an ARN")
    if is_queue_url(queue):
        return queue
    if is_arn(queue):
        try:
            parse_queue_arn(queue)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return queue
    name = safe_queue_name(queue)
    if not is_queue_name(name):
        raise UsageError(f"the queue name {queue!r} is longer than the 80 characters of SQS")
    return name


class QueueUrls:
    """Looks up queue URLs over a backend and remembers them until they are forgotten."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, str] = {}

    async def resolve(self, queue: str) -> str:
        """The URL of a queue. Raises `QueueDoesNotExist` where there is none of that name."""
        queue = check_queue(queue)
        if is_queue_url(queue):
            return queue
        if (url := self._known.get(queue)) is None:
            if is_arn(queue):
                name = parse_queue_arn(queue)
                lookup = GetQueueUrl(name.name, name.account_id or None)
            else:
                lookup = GetQueueUrl(queue)
            url = (await self._backend.execute(lookup)).queue_url
            self._known[queue] = url
        return url

    async def execute(self, queue: str, make: Callable[[str], Operation[R]]) -> R:
        """Execute the operation that `make` makes for the queue's URL.

        Where a remembered URL is answered with `QueueDoesNotExist`, the queue is looked up anew,
        and the operation is executed again if it has another URL now.
        """
        known = self._known.get(check_queue(queue))
        url = await self.resolve(queue)
        try:
            return await self._backend.execute(make(url))
        except QueueDoesNotExist:
            self.forget(queue)
            if known is None or (again := await self.resolve(queue)) == url:
                raise
            return await self._backend.execute(make(again))

    def forget(self, queue: str) -> None:
        """Look the queue up again next time; for after a `QueueDoesNotExist`."""
        self._known.pop(check_queue(queue), None)
