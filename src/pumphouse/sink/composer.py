"""From what a caller hands to `send` to the message that will be sent: `Composer`.

Body, attributes, group, deduplication id, claim check: everything that can be said before any
request is said here, once, and does not change when the message is tried again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pumphouse import content
from pumphouse.claim_check import ClaimCheck
from pumphouse.envelope import TELLING_ATTRIBUTES, Envelope
from pumphouse.errors import NotSentError, OutcomeUnknownError, PumphouseError, UsageError
from pumphouse.protocol.attributes import (
    MAX_ATTRIBUTES,
    forbidden_character,
    plain,
    text_size,
)
from pumphouse.protocol.operations import Attributes, MessageAttributeValue
from pumphouse.sink.options import Settings
from pumphouse.sink.outgoing import (
    Outgoing,
    SendOptions,
    add_optional,
    attribute_values,
    check_delay,
    check_for_topic,
    check_id,
    encode_body,
    plain_text,
)


class Composer:
    """Makes the messages of one queue or topic (`kind`)."""

    def __init__(self, queue: str, settings: Settings, *, fifo: bool, kind: str = "queue") -> None:
        self._queue = queue
        self._kind = kind
        self._settings = settings
        self._fifo = fifo

    def compose(
        self,
        original: object,
        *,
        places: int = 0,
        id: str | None = None,  # noqa: A002 - it is the message's own
        tenant: str | None = None,
        source: str | None = None,
        group_id: str | None = None,
        deduplication_id: str | None = None,
        replay_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        headers: content.Headers | None = None,
        delay: Any = None,
        trace_header: str | None = None,
        subject: str | None = None,
        message_structure: str | None = None,
    ) -> Outgoing:
        """The message as it will be sent, checked. `places` is how many attributes it may have less
        than ten. Raises `UsageError`."""
        if id is not None and type(id) is not str:
            id = plain_text("id", id)  # noqa: A001
        if tenant is not None and type(tenant) is not str:
            tenant = plain_text("tenant", tenant)
        if source is not None and type(source) is not str:
            source = plain_text("source", source)
        if replay_id is not None and type(replay_id) is not str:
            replay_id = plain_text("replay_id", replay_id)
        known: content.Weighed | None = None
        if attributes and not headers and type(attributes) is dict:
            known = content.short_texts(attributes)
        given = _given(attributes, headers) if known is None else known.attributes.copy()
        envelope = original if isinstance(original, Envelope) else None
        body = original
        if envelope is not None:
            body = envelope.to_json()
            id = id or envelope.id  # noqa: A001
            tenant = tenant or envelope.tenant_id
            source = source or envelope.source_id
            replay_id = replay_id or envelope.replay_id
        text = content.lay_out(encode_body(body), given)
        if envelope is not None:
            add_optional(given, envelope.attributes(self._settings.attribute_prefix), places)
        size, md5_of_body, md5_of_attributes = content.measure(text, given, known)
        message = Outgoing(
            asyncio.get_running_loop().create_future(),
            size,
            tenant or "",
            "",
            original=original,
            body=text,
            attributes=given,
            md5_of_body=md5_of_body,
            md5_of_attributes=md5_of_attributes,
            id=id,
            source=source,
            replay_id=replay_id,
        )
        if (add := self._settings.add_attributes) is not None:
            add_optional(given, _asked("add_attributes", add, message), places)
            _measure(message)
        if not given:
            message.attributes = None
        if trace_header:
            message.system_attributes = _trace(trace_header)
        if delay is not None:
            message.delay = check_delay(delay, fifo=self._fifo)
        if self._kind == "topic" or subject is not None or message_structure is not None:
            check_for_topic(message, self._queue, self._kind, subject, message_structure)
        self._address(message, tenant, group_id, deduplication_id)
        return message

    def _address(
        self, message: Outgoing, tenant: str | None, group: str | None, deduplication: str | None
    ) -> None:
        """Give a message its group and its deduplication id, for good."""
        hashed = self._settings.hash_ids
        if group is None and (chosen := self._settings.group_id) is not None:
            group = _asked("group_id", chosen, message) if callable(chosen) else chosen
        if not self._fifo:
            if deduplication is not None:
                raise UsageError(
                    f"{self._queue} is a standard {self._kind}, which takes no deduplication id"
                )
            if group is not None:
                message.group_id = check_id("group id", group, hashed=hashed)
            return
        if group is None:
            if not (tenant or message.source):
                raise UsageError(
                    f"{self._queue} is a FIFO {self._kind}: give group_id, or tenant and source"
                )
            group = f"{tenant or ''}/{message.source or ''}"
        message.group_id = message.lane = check_id("group id", group, hashed=hashed)
        if deduplication is None:
            deduplication = uuid.uuid4().hex if message.id is None else message.id
            if message.replay_id:
                deduplication = f"{deduplication}:replay:{message.replay_id}"
        message.deduplication_id = check_id("deduplication id", deduplication, hashed=hashed)

    async def offloaded(
        self, check: ClaimCheck, message: Outgoing, small: Outgoing, options: SendOptions
    ) -> tuple[Outgoing, PumphouseError | None]:
        """The message, its body in the claim check when it is too large to travel; with why the
        body could not be stored, where it could not. `small` is the message with a place less for
        attributes, and changed. Raises `UsageError`."""
        if message.message_structure is not None:  # SNS reads its body
            return message, None
        envelope = message.original if isinstance(message.original, Envelope) else None
        data = envelope.body if envelope is not None else None
        if envelope is not None and data is None:  # it is in a claim check already
            return message, None
        if not check.wants(text_size(message.body) if data is None else len(data)):
            return message, None
        shared = self._kind == "topic"
        try:
            if envelope is not None:
                own = _given(options.get("attributes"), options.get("headers"))
                if len(own) > MAX_ATTRIBUTES - TELLING_ATTRIBUTES:
                    raise UsageError(
                        f"the message has {len(own)} attributes, and an envelope whose body is in "
                        f"the claim check needs {TELLING_ATTRIBUTES} of {MAX_ATTRIBUTES}"
                    )
                stored = await envelope.offloaded(check, self._queue, shared=shared)
                return self.compose(stored, **options), None
            wire = small.attributes or {}
            if len(wire) == MAX_ATTRIBUTES:
                raise UsageError(
                    f"the message has {MAX_ATTRIBUTES} attributes, and the claim check needs one"
                )
            id = small.deduplication_id or small.id or uuid.uuid4().hex  # noqa: A001
            whose = (small.tenant, small.source, small.replay_id, self._queue)
            small.body, small.attributes = await check.offload(
                small.body, wire, id, *whose, shared=shared
            )
        except UsageError:
            raise
        except Exception as error:
            return message, _not_stored(error)
        _measure(small)
        return small, None


def _given(attributes: Mapping[str, Any] | None, headers: content.Headers | None) -> Attributes:
    """Attributes and headers as message attributes."""
    given: Attributes = attribute_values(attributes) if attributes else {}
    if headers:
        of_headers = content.header_attributes(headers)
        if twice := sorted(given.keys() & of_headers.keys()):
            raise UsageError(f"{', '.join(twice)}: in the headers and in the attributes")
        given.update(of_headers)
    return given


def _not_stored(error: Exception) -> PumphouseError:
    """Why a body could not be stored, as an error of its message, which was not sent at all."""
    if isinstance(error, PumphouseError) and not isinstance(error, OutcomeUnknownError):
        return error
    plain = NotSentError(
        f"not sent: its body could not be stored ({error or type(error).__name__})"
    )
    plain.__cause__ = error
    return plain


def _asked(option: str, function: Callable[[Outgoing], Any], message: Outgoing) -> Any:
    """What a function of the caller's says of a message."""
    try:
        return function(message)
    except PumphouseError:
        raise
    except Exception as error:
        raise UsageError(f"{option}: the function raised {error!r}") from error


def _trace(header: str) -> Attributes:
    if not isinstance(header, str) or forbidden_character(header):
        raise UsageError(f"the trace_header is {header!r}; it is text that SQS takes")
    return {"AWSTraceHeader": MessageAttributeValue("String", plain(header))}


def _measure(message: Outgoing) -> None:
    """Write down anew what depends on body and attributes."""
    measured = content.measure(message.body, message.attributes)
    message.size, message.md5_of_body, message.md5_of_attributes = measured
