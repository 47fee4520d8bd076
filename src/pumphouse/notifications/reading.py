"""Which messages of a queue are envelopes of SNS: said by the queue's descriptor, never guessed.

* `raw`: none; every body is what it is.
* `envelope`: every one; what is none is undecodable.
* `auto`: the subscriptions that bring messages to the queue are read at start. Only a topic whose
  subscription has no raw delivery can bring an envelope, so a message is opened where it has every
  field of an envelope and names such a topic; everything else is left alone, whatever it looks
  like.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from pumphouse.backend import Backend
from pumphouse.content import UndecodableError
from pumphouse.errors import ConfigError, RefusedConfigError, SubscriptionDoesNotExist
from pumphouse.notifications.document import NOTIFICATION, Notification, opened, read
from pumphouse.notifications.signatures import Verifier
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.protocol.sns_operations import (
    GetSubscriptionAttributes,
    ListSubscriptions,
    SubscriptionReference,
)

SnsMode = Literal["raw", "envelope", "auto"]
_MOST_PAGES = 1_000


@dataclass(frozen=True, slots=True)
class Reading:
    """How the messages of one queue are read.

    `topics` are those whose envelopes are opened, None for all. With a `verifier` an envelope is
    opened only when SNS signed it.
    """

    topics: frozenset[str] | None = None
    verifier: Verifier | None = None

    def envelope_of(self, raw: ReceivedMessage) -> Notification | None:
        """The envelope that a message is, or None for one that is to be left alone.

        Raises `UndecodableError` where it has to be one and is not.
        """
        if self.topics is not None and not raw.body.startswith("{"):
            return None
        try:
            found = read(raw.body)
            if self.topics is None and found.type != NOTIFICATION:
                raise UndecodableError(f"the envelope is a {found.type} and no notification")
        except UndecodableError:
            if self.topics is None:
                raise
            return None
        if self.topics is not None and not (found.complete and found.topic_arn in self.topics):
            return None
        return found

    def opened(self, raw: ReceivedMessage) -> ReceivedMessage:
        """The message without its envelope, if it has one, unverified; `UndecodableError`."""
        envelope = self.envelope_of(raw)
        return raw if envelope is None else opened(raw, envelope)

    async def verified(self, raw: ReceivedMessage) -> ReceivedMessage:
        """As `opened`, once the signature was verified where that is wanted.

        Raises `SignatureError`, an `UndecodableError`, where SNS did not sign it, and what fetching
        the certificate raises.
        """
        envelope = self.envelope_of(raw)
        if envelope is None:
            return raw
        if self.verifier is not None:
            await self.verifier.verify(envelope)
        return opened(raw, envelope)


async def reading_for(
    mode: SnsMode, backend: Backend, queue_arn: str, verifier: Verifier | None
) -> Reading | None:
    """How a queue is read; None for as it is. With "auto" its subscriptions are looked up.

    Raises `ConfigError` where they can't be.
    """
    if mode == "raw":
        return None
    if mode == "envelope":
        return Reading(None, verifier)
    try:
        topics = {each.topic_arn async for each in _enveloped(backend, queue_arn)}
    except RefusedConfigError as error:
        raise ConfigError(
            f"sns='auto' reads the subscriptions of {queue_arn}, and that is refused ({error}); "
            "permit sns:ListSubscriptions and sns:GetSubscriptionAttributes, or say sns='raw' or "
            "sns='envelope'"
        ) from error
    return Reading(frozenset(topics), verifier) if topics else None


async def _enveloped(backend: Backend, queue_arn: str) -> AsyncIterator[SubscriptionReference]:
    """The subscriptions of a queue that have no raw delivery."""
    token: str | None = None
    for _ in range(_MOST_PAGES):
        page = await backend.execute(ListSubscriptions(token))
        for each in page.subscriptions:
            if each.protocol != "sqs" or each.endpoint != queue_arn:
                continue
            try:
                answer = await backend.execute(GetSubscriptionAttributes(each.subscription_arn))
            except SubscriptionDoesNotExist:  # it has ended meanwhile
                continue
            if answer.attributes.get("RawMessageDelivery", "false").lower() != "true":
                yield each
        token = page.next_token
        if token is None:
            return
    raise ConfigError(
        f"the subscriptions of {queue_arn} were not all found in {_MOST_PAGES} pages; "
        "say sns='raw' or sns='envelope'"
    )
