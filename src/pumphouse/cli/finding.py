"""Looks whether a queue or topic can be sent to, before anything is: one error in place of many."""

from __future__ import annotations

from pumphouse.addressing import Topic
from pumphouse.backend import Backend
from pumphouse.errors import RefusedConfigError, RefusedError, ThrottledError
from pumphouse.sink.destination import destination_of

_NOT_PERMITTED = frozenset(
    {"AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException"}
)


async def find(to: str | Topic, backend: Backend) -> None:
    """Look for credentials and for the destination, in one or two requests.

    Raises `NoCredentialsError`, `QueueDoesNotExist` or `TopicDoesNotExist`, and what else keeps a
    sink from finding it. That its attributes may not be read keeps nobody from sending.
    """
    destination = destination_of(to, backend)
    address = await destination.look_up()
    try:
        await destination.limit(address)
    except RefusedConfigError as error:
        if error.code not in _NOT_PERMITTED:
            raise
    except (RefusedError, ThrottledError):
        pass
