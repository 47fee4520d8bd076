"""What an account keeps of SNS beside its topics: subscriptions, deliveries, the signing key.

Topics lie with the region and account id that they belong to (`Scope.topics`).
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from pumphouse.account.queue import Queue
from pumphouse.account.topics.notifying import Deliver, Notifier
from pumphouse.account.topics.signing import Signer
from pumphouse.account.topics.topic import Subscription
from pumphouse.clock import Clock
from pumphouse.protocol.names import aws_host

UNDELIVERED_ROOM = 10_000
KNOWN_QUEUES = 10_000
ORPHAN_SECONDS = 60.0
"""How long a subscription of a deleted topic can still be looked at; on AWS it lags too."""

TOKEN_SECONDS = 2 * 86_400.0
"""How long a token confirms a subscription."""

_FIRST_SEQUENCE_NUMBER = 10_000_000_000_000_000_000
_SEQUENCE_STEP = 1000


class Undelivered(Struct, frozen=True):
    """A message that reached neither a subscription's endpoint nor a dead-letter queue."""

    subscription_arn: str
    message_id: str
    reason: str


class Topics:
    """The SNS half of an account, for all regions and account ids.

    `base_url` is where the URLs in notifications lead (to unsubscribe, to confirm, to the
    certificate); those of another region than `region` name theirs in the path. "" is AWS's own
    address of the topic's region. `undelivered` has the latest messages that came to nothing, the
    oldest first.
    """

    def __init__(self, clock: Clock, deliver: Deliver | None, region: str) -> None:
        self._home = region
        self.subscriptions: dict[str, Subscription] = {}
        self.known_queues: dict[str, Queue] = {}
        """Queues that were delivered to, by ARN: not more than `KNOWN_QUEUES`."""
        self.by_token: dict[str, Subscription] = {}
        self._clock = clock
        self.signer = Signer(clock)
        self.notifier = Notifier(clock, deliver)
        self.base_url = ""
        self.undelivered: deque[Undelivered] = deque(maxlen=UNDELIVERED_ROOM)
        self._sequence = itertools.count(1)
        self._subscription_numbers = itertools.count(1)
        self._orphans: deque[Subscription] = deque()

    def next_sequence_number(self) -> str:
        """The next number of a FIFO topic's message."""
        return str(_FIRST_SEQUENCE_NUMBER + _SEQUENCE_STEP * next(self._sequence))

    def next_subscription_number(self) -> int:
        """The number of a new subscription."""
        return next(self._subscription_numbers)

    def forget_token(self, subscription: Subscription) -> None:
        """Let a subscription's token confirm nothing any more."""
        self.by_token.pop(subscription.token, None)
        subscription.token = ""

    def give_token(self, subscription: Subscription) -> None:
        """Give a subscription a new token, in the place of one that it has."""
        self.forget_token(subscription)
        subscription.token = self.new_token()
        subscription.token_until = self._clock.monotonic() + TOKEN_SECONDS
        self.by_token[subscription.token] = subscription

    def orphan(self, subscriptions: Iterable[Subscription], now: float) -> None:
        """Subscriptions have lost their topic: they can be looked at a while longer."""
        for subscription in subscriptions:
            self.forget_token(subscription)
            subscription.orphaned = now
            self._orphans.append(subscription)
        while self._orphans and (self._orphans[0].orphaned or 0.0) + ORPHAN_SECONDS <= now:
            self.subscriptions.pop(self._orphans.popleft().arn, None)

    @staticmethod
    def new_token() -> str:
        """A token that confirms a subscription, shaped like AWS's."""
        return secrets.token_hex(144)

    def url(self, region: str) -> str:
        """Where SNS is, for the links in notifications."""
        if not self.base_url:
            return f"https://{aws_host('sns', region)}"
        return self.base_url if region == self._home else f"{self.base_url}/{region}"

    async def aclose(self) -> None:
        """Stop the deliveries that are under way."""
        await self.notifier.aclose()

    def __repr__(self) -> str:
        return f"<Topics: {len(self.subscriptions)} subscriptions, {self.notifier!r}>"
