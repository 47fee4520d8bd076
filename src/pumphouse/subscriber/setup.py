"""What a subscription finds, and puts in place, before the first receive.

The queue's URL and its own visibility timeout are read once. The redrive policy is written or
checked: SQS's limit on receives is only the safety net for messages that kill their consumers, as
the runtime itself carries a message that has used up its attempts; so what is written leaves room
for receives that are no attempts (`receive_limit`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pumphouse.addressing import QueueUrls
from pumphouse.backend import Backend
from pumphouse.errors import ConfigError, QueueDoesNotExist, QueueNameExists
from pumphouse.notifications.reading import Reading, reading_for
from pumphouse.notifications.signatures import Verifier
from pumphouse.protocol.names import parse_queue_arn
from pumphouse.protocol.operations import CreateQueue, GetQueueAttributes, SetQueueAttributes
from pumphouse.subscriber.outcomes import Reject
from pumphouse.subscriber.queue import Queue

if TYPE_CHECKING:
    from pumphouse.subscriber.subscription import Subscription

DEFAULT_LEASE_SECONDS = 30
SPARE_RECEIVES = 10
"""Receives of SQS's limit that are left for stops and crashes: closer to it nothing is given back
that can be kept."""
_log = logging.getLogger("pumphouse.subscriber")


@dataclass(frozen=True, slots=True)
class Ready:
    """A queue that can be read.

    `lease_seconds` is what a delivery is held under. `max_attempts` and `dead_letter_url` come from
    the subscription or from the queue's own redrive policy; None where there is neither.
    `max_receives` is SQS's own limit.
    """

    queue_url: str
    queue_arn: str
    lease_seconds: int
    max_attempts: int | None
    max_receives: int | None
    dead_letter_url: str | None
    dead_letter_name: str
    resolve: Callable[[], Awaitable[str]]
    reading: Reading | None = None  # how envelopes of SNS are opened


class RedrivePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A queue's `RedrivePolicy`, as SQS writes it."""

    dead_letter_target_arn: str
    max_receive_count: int


def receive_limit(max_attempts: int) -> int:
    """SQS's `maxReceiveCount` for a number of attempts: twice as many and ten more, up to 1,000.

    It has to be more than the attempts: a message is also received when it comes along with a
    failing head of its group, and when a stop gives it back unrun.
    """
    return min(1_000, 2 * max_attempts + SPARE_RECEIVES)


async def prepare(
    subscription: Subscription,
    backend: Backend,
    urls: QueueUrls,
    verifier: Verifier | None = None,
) -> Ready:
    """Make one subscription ready to be read; `verifier` is for a queue that wants signatures.

    Raises `ConfigError` for a queue or a dead-letter queue that is missing, or a redrive policy
    that contradicts the subscription; and whatever the backend raises.
    """
    queue = subscription.queue
    queue_url = await find_queue(queue, backend, urls, "queue")
    attributes = await _attributes(queue_url, backend)
    arn = attributes.get("QueueArn", "")
    own = redrive_policy_of(attributes, queue.name)
    max_attempts, dead_letter_url, dead_letter_name, limit = None, None, "", None
    if subscription.dead_letter is not None and subscription.max_attempts is not None:
        dead_letter = subscription.dead_letter
        max_attempts = subscription.max_attempts
        dead_letter_url = await find_queue(dead_letter, backend, urls, "dead-letter queue")
        dead_letter_name = dead_letter.known_as.name
        dead_letter_arn = (await _attributes(dead_letter_url, backend)).get("QueueArn", "")
        if subscription.redrive == "write":
            wanted = RedrivePolicy(dead_letter_arn, receive_limit(max_attempts))
            if own != wanted:
                policy = {
                    "deadLetterTargetArn": wanted.dead_letter_target_arn,
                    "maxReceiveCount": str(wanted.max_receive_count),
                }
                await backend.execute(
                    SetQueueAttributes(
                        queue_url, {"RedrivePolicy": msgspec.json.encode(policy).decode()}
                    )
                )
                _log.info("%s: redrive policy written: %s", queue.name, policy)
            own = wanted
        else:
            _check(subscription, own, dead_letter_arn)
        limit = own.max_receive_count if own else None
    elif own is not None:
        target = parse_queue_arn(own.dead_letter_target_arn)
        max_attempts = limit = own.max_receive_count
        dead_letter_name = target.name
        try:
            dead_letter_url = await urls.resolve(own.dead_letter_target_arn)
        except QueueDoesNotExist:
            _log.warning(
                "%s: its dead-letter queue %s does not exist", queue.name, dead_letter_name
            )
            max_attempts = None
    if own is None:
        _check_rejects(subscription)
    elif subscription.ordered and own.max_receive_count <= SPARE_RECEIVES:
        _log.warning(
            "%s: SQS gives a message up after %d receives, and each stop or crash of a consumer is "
            "one for all of a group that it holds; %d or more are safer, and max_attempts= and "
            "dead_letter= write what is",
            queue.name,
            own.max_receive_count,
            receive_limit(max_attempts or 1),
        )
    own_lease = int(attributes.get("VisibilityTimeout") or 0)
    lease = queue.visibility_timeout or own_lease
    if lease < 1:
        raise ConfigError(
            f"queue {queue.name!r} has a visibility timeout of 0, so nothing that is received "
            "could be held; give Queue(visibility_timeout=…)"
        )
    if not queue.extend and subscription.batch_window_seconds >= lease:
        raise ConfigError(
            f"a batch of {queue.name!r} is collected for {subscription.batch_window_seconds:g} s, "
            f"and with extend=False a lease ends after {lease} s, so nothing would be handled; "
            "make batch_window shorter or visibility_timeout longer, or let leases be extended"
        )

    async def resolve() -> str:
        urls.forget(queue.name)
        return await urls.resolve(queue.name)

    return Ready(
        queue_url,
        arn,
        lease,
        max_attempts,
        limit,
        dead_letter_url,
        dead_letter_name,
        resolve,
        await reading_for(
            queue.sns, backend, arn, verifier if queue.verify_sns_signatures else None
        ),
    )


async def find_queue(queue: Queue, backend: Backend, urls: QueueUrls, what: str) -> str:
    """The URL of a queue, created where it is declared so. Raises `ConfigError`, which calls it
    `what`, where it does not exist."""
    try:
        return await urls.resolve(queue.name)
    except QueueDoesNotExist:
        if not queue.create_if_missing:
            raise ConfigError(
                f"the {what} {queue.name!r} does not exist; create it, or declare it as "
                f"Queue({queue.name!r}, create_if_missing=True)"
            ) from None
    name = queue.known_as.name
    try:
        created = await backend.execute(CreateQueue(name, queue.creation_attributes() or None))
    except QueueNameExists:  # someone was quicker
        return await urls.resolve(queue.name)
    _log.info("%s %s created", what, name)
    return created.queue_url


async def _attributes(queue_url: str, backend: Backend) -> dict[str, str]:
    try:
        answer = await backend.execute(GetQueueAttributes(queue_url, ["All"]))
    except QueueDoesNotExist:
        raise ConfigError(f"the queue {queue_url} does not exist") from None
    return answer.attributes


def redrive_policy_of(attributes: Mapping[str, str], name: str) -> RedrivePolicy | None:
    """The policy among a queue's attributes. Raises `ConfigError` for one that can't be read."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    try:
        return msgspec.json.decode(text.encode(), type=RedrivePolicy, strict=False)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the redrive policy of {name!r} can't be read: {error}") from None


def _check_rejects(subscription: Subscription) -> None:
    """Raise `ConfigError` for rules that reject, where there is nowhere to carry a message to."""
    rules = subscription.on_error.values() if isinstance(subscription.on_error, Mapping) else ()
    if subscription.undecodable == "reject":
        rule = "undecodable='reject'"
    elif any(each is Reject or isinstance(each, Reject) for each in rules):
        rule = "an on_error with Reject"
    else:
        return
    raise ConfigError(
        f"queue {subscription.queue.name!r} has no dead-letter queue, and its subscriber has "
        f"{rule}; give max_attempts= and dead_letter=, or a redrive policy to the queue"
    )


def _check(subscription: Subscription, own: RedrivePolicy | None, dead_letter_arn: str) -> None:
    name = subscription.queue.name
    wanted = subscription.max_attempts or 0
    if own is None:
        raise ConfigError(
            f"queue {name!r} has no redrive policy, and the subscription says "
            f"max_attempts={wanted} with redrive='check'; set one, or let redrive='write' do it"
        )
    if own.dead_letter_target_arn != dead_letter_arn:
        raise ConfigError(
            f"the redrive policy of {name!r} names {own.dead_letter_target_arn}, and the "
            f"subscription {dead_letter_arn}"
        )
    if own.max_receive_count < wanted:
        raise ConfigError(
            f"the redrive policy of {name!r} gives a message up after {own.max_receive_count} "
            f"receives, before its {wanted} attempts; set maxReceiveCount to at least {wanted}, "
            f"better to {receive_limit(wanted)}"
        )
    if own.max_receive_count < receive_limit(wanted):
        _log.warning(
            "%s: maxReceiveCount is %d for %d attempts; receives that are no attempts can use it "
            "up, %d is safer",
            name,
            own.max_receive_count,
            wanted,
            receive_limit(wanted),
        )
