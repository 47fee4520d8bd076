"""`SnsEndpoint`: an ASGI application that SNS delivers to over HTTP, for the handlers of an app.

A request is read within bounds, its document verified, and its topic looked up among those that
are expected. A confirmation is confirmed over the backend; a notification is run by the handler as
a message of its queue would be. The answer tells SNS what to do ("Amazon SNS message delivery
retries" in its developer guide): 2xx is delivered, 5xx and 429 are tried again by the
subscription's delivery policy, and any other 4xx is not, and goes to the subscription's dead-letter
queue where it has one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from pumphouse.app import App, Handler
from pumphouse.backend import Backend
from pumphouse.clock import RealClock, timeout
from pumphouse.content import UndecodableError
from pumphouse.errors import PumphouseError, RefusedConfigError, RefusedError, UsageError
from pumphouse.notifications.document import (
    CONFIRMATION,
    NOTIFICATION,
    UNSUBSCRIBED,
    Notification,
    opened,
    read,
)
from pumphouse.notifications.signatures import SignatureError, Verifier
from pumphouse.protocol.names import parse_topic_arn
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.protocol.sns_operations import ConfirmSubscription
from pumphouse.running import Running
from pumphouse.subscriber.delivery import RUNNING, Delivery
from pumphouse.subscriber.outcomes import Ack, Drop, Reject

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY_BYTES = 2_097_152
"""The largest request that is read: a message of 256 KiB, every byte of it escaped, and more."""
MAX_AGE_SECONDS = 4500.0
"""How old a document may be: SNS tries for an hour at most, and clocks differ."""
ANSWER_SECONDS = 14.0
"""How long a handler may take: SNS waits 15 seconds for an answer."""

_log = logging.getLogger("pumphouse.sns")


class SnsEndpoint:
    """Receives what SNS delivers, and hands it to handlers of an app.

    ```python
    endpoint = SnsEndpoint(app, {"arn:aws:sns:eu-west-1:123456789012:orders": handle})
    ```

    - `topics`: by ARN the handler (declared with `app.subscriber`) of each topic that may deliver.
      Everything else is refused, and no other subscription is confirmed: anyone who has an account
      of AWS can have SNS sign something.
    - `verify`: whether signatures are verified; `verifier` is who does, by default the app's or one
      that fetches SNS's certificates. Raw delivery is not signed, so it is refused while this is
      on.
    - `max_age_seconds`: how old a verified document may be, so that one that was seen on its way
      can't be sent again for ever; None for any age.
    - `confirm`: whether subscriptions are confirmed, over `backend`, which is the app's own where
      none is given.
    - `max_concurrency`: how many requests are verified and handled at once; what comes beyond is
      answered 429.
    - `answer_seconds`: how long both may take before they are cancelled and SNS tries again.

    The app has to run. Under a server that speaks ASGI's lifespan it is started here, over
    `backend`, if it does not run yet. `attempt` is always 1 for a message that came this way, as
    SNS does not count: its retries are the delivery policy's, not `max_attempts`.

    Raises `UsageError` for topics, handlers and numbers that can't be.
    """

    def __init__(
        self,
        app: App,
        topics: Mapping[str, Handler[..., Any]],
        *,
        backend: Backend | None = None,
        verify: bool = True,
        verifier: Verifier | None = None,
        max_age_seconds: float | None = MAX_AGE_SECONDS,
        confirm: bool = True,
        max_concurrency: int = 100,
        max_body_bytes: int = MAX_BODY_BYTES,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        for arn, handler in topics.items():
            try:
                parse_topic_arn(arn)
            except ValueError as error:
                raise UsageError(str(error)) from None
            if handler not in app.handlers:
                raise UsageError(f"the handler of {arn} is not declared with app.subscriber")
        if not topics:
            raise UsageError("no topic may deliver; name one, with its handler")
        if max_concurrency < 1 or max_body_bytes < 1 or not answer_seconds > 0:
            raise UsageError("max_concurrency, max_body_bytes and answer_seconds are above 0")
        if max_age_seconds is not None and not max_age_seconds > 0:
            raise UsageError("max_age_seconds is above 0, or None")
        verifier = verifier or app.sns_verifier
        if verify and verifier is None:
            from pumphouse.http.fetch import fetch

            verifier = Verifier(fetch)
        self.app = app
        self._topics = dict(topics)
        self._backend = backend
        self._verifier = verifier if verify else None
        self._max_age_seconds = max_age_seconds
        self._confirm = confirm
        self._most = max_concurrency
        self._max_body_bytes = max_body_bytes
        self._answer_seconds = answer_seconds
        self._busy = 0

    # --- ASGI -----------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the endpoint speaks HTTP, and no {scope['type']}")
        status, text = await self._request(scope, receive)
        if status >= 400:
            _log.warning("a request of SNS was answered %d: %s", status, text)
        content = f"{text}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(content)).encode()),
        ]
        if status == 405:
            headers.append((b"allow", b"POST"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            await receive()
            try:
                if self.app.run_now is None:
                    await stack.enter_async_context(self.app.running(self._backend))
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _request(self, scope: Scope, receive: Receive) -> tuple[int, str]:
        """The status and the words that a request is answered with."""
        if scope["method"] != "POST":
            return 405, "SNS posts"
        if (body := await self._body(receive)) is None:
            return 413, f"more than {self._max_body_bytes} bytes"
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._busy >= self._most:
            return 429, f"{self._most} requests are at work"
        running: Running | None = self.app.run_now
        self._busy += 1
        try:
            async with timeout(running.clock if running else RealClock(), self._answer_seconds):
                return await self._answer(headers, body)
        except TimeoutError:
            return 503, f"the handler took longer than {self._answer_seconds:g} s"
        finally:
            self._busy -= 1

    async def _answer(self, headers: Mapping[bytes, str], body: bytes) -> tuple[int, str]:
        try:
            if headers.get(b"x-amz-sns-rawdelivery", "").lower() == "true":
                return await self._raw(headers, body)
            document = read(body)
            if document.topic_arn not in self._topics:
                return 403, f"the topic {document.topic_arn} is not expected here"
            if self._verifier is not None:
                await self._verifier.verify(document, max_age_seconds=self._max_age_seconds)
            return await self._signed(document)
        except SignatureError as error:
            return 403, str(error)
        except UndecodableError as error:
            return 400, str(error)
        except (RefusedError, RefusedConfigError) as error:
            return 403, str(error)
        except PumphouseError as error:  # no certificate now, or no answer of the backend
            return 503, str(error)

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, or None for one that is too long."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return b""
            part = event.get("body", b"")
            size += len(part)
            if size > self._max_body_bytes:
                return None
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts)

    # --- what came ------------------------------------------------------------------------------

    async def _signed(self, document: Notification) -> tuple[int, str]:
        if document.type == NOTIFICATION:
            raw = _received(document.message_id, document.message, document.timestamp)
            return await self._run(document.topic_arn, opened(raw, document))
        if document.type == UNSUBSCRIBED:
            _log.warning("SNS says that this endpoint was unsubscribed: %s", document.topic_arn)
            return 200, "noted"
        if document.type != CONFIRMATION or not document.token:
            return 400, f"a {document.type} without a token is nothing that SNS sends"
        if not self._confirm:
            return 403, "subscriptions are not confirmed here"
        running = self.app.run_now
        backend = self._backend or (running.backend if running is not None else None)
        if backend is None:
            return 503, "the app does not run"
        answer = await backend.execute(ConfirmSubscription(document.topic_arn, document.token))
        _log.info("confirmed: %s", answer.subscription_arn)
        return 200, "confirmed"

    async def _raw(self, headers: Mapping[bytes, str], body: bytes) -> tuple[int, str]:
        """A notification without its document: topic and id are in the headers."""
        arn = headers.get(b"x-amz-sns-topic-arn", "")
        if arn not in self._topics:
            return 403, f"the topic {arn or 'of no name'} is not expected here"
        if self._verifier is not None:
            return 403, "raw delivery is not signed; turn it off, or verify=False here"
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return 400, f"the body is no text: {error}"
        return await self._run(arn, _received(headers.get(b"x-amz-sns-message-id", ""), text, ""))

    async def _run(self, arn: str, raw: ReceivedMessage) -> tuple[int, str]:
        """Run the topic's handler, and say how it ended."""
        running: Running | None = self.app.run_now
        if running is None or running.stopping:
            return 503, "the app does not run"
        handler = self._topics[arn]
        runner, subscription = next(
            (each.runner, each.subscription)
            for each in running.consumers
            if each.subscription.handler is handler
        )
        try:
            if subscription.claim_check is None:
                subscription.plan.check(raw)
        except UndecodableError as error:
            # SNS has it to keep or to drop: trying again changes nothing
            return (200 if subscription.undecodable == "drop" else 422), str(error)
        now = running.clock.monotonic()
        delivery = Delivery(raw, now, now + self._answer_seconds)
        delivery.restored = raw  # it has no envelope any more, whatever its queue's have
        delivery.move(RUNNING)
        delivery.started_at = now
        if subscription.batch is not None:
            [outcome] = await runner.run_batch([delivery])
        else:
            outcome = await runner.run(delivery)
        if isinstance(outcome, Ack | Drop):
            return 200, "handled"
        if isinstance(outcome, Reject):
            return 422, outcome.reason or "rejected"
        return 503, getattr(outcome, "reason", "") or "to be delivered again"

    def __repr__(self) -> str:
        return f"<SnsEndpoint of {self.app.name}: {len(self._topics)} topics, {self._busy} at work>"


def _received(message_id: str, body: str, timestamp: str) -> ReceivedMessage:
    """A notification as a queue would have brought it, once."""
    attributes = {"ApproximateReceiveCount": "1"}
    try:
        sent = datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        pass
    else:
        attributes["SentTimestamp"] = str(int(sent * 1000))
        attributes["ApproximateFirstReceiveTimestamp"] = attributes["SentTimestamp"]
    return ReceivedMessage(
        message_id=message_id,
        receipt_handle="",
        md5_of_body="",
        body=body,
        attributes=attributes,
        message_attributes=None,
    )
