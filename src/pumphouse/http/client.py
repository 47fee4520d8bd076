"""`HttpBackend`: executes operations at AWS, or at anything that speaks SQS's protocol, over HTTP.

One call goes this way: the operation is encoded (`call.py`), its endpoint found (`endpoint.py`),
keys taken (`credentials.py`), a connection taken from its lane (`pool.py`), the request signed and
written (`request.py`), and the answer decoded (`call.py`). What may be tried again, and what the
call ends as, is decided in `retry.py`. A batch is sent as it is: which entries failed is the
caller's to read in the result, and so are the MD5s.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import ssl
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from pumphouse import __version__
from pumphouse.backend import nothing_leaves
from pumphouse.backoff import NO_RETRIES, RetryPolicy, one_try
from pumphouse.clock import Clock, RealClock, timeout
from pumphouse.errors import (
    ClockSkewError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    ServiceError,
    ThrottledError,
    UsageError,
)
from pumphouse.hooks import Hooks
from pumphouse.http import retry as rules
from pumphouse.http.call import Call
from pumphouse.http.connection import Answer, ExchangeFailed
from pumphouse.http.credentials import BotocoreChain, Keeper, Source
from pumphouse.http.dial import tls_context
from pumphouse.http.endpoint import (
    Configuration,
    Endpoint,
    check_endpoint_url,
    check_region,
    region_hint,
)
from pumphouse.http.events import ClockCorrected, RequestFinished, RequestStarted, RetryScheduled
from pumphouse.http.loops import Loops
from pumphouse.http.options import RETRY, Options
from pumphouse.http.pool import LoopPool
from pumphouse.http.request import RequestWriter
from pumphouse.protocol.operations import Operation
from pumphouse.protocol.sigv4 import Keys, amz_date

R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("pumphouse.http")

USER_AGENT = f"pumphouse/{__version__} Python/{platform.python_version()}"
SKEW_SECONDS = 30.0
"""A clock that differs by less than this is not why a signature was refused."""


_NAMED_BY = (
    "queue_url",
    "source_arn",
    "topic_arn",
    "subscription_arn",
    "target_arn",
    "resource_arn",
)
"""The fields of operations that tell a region."""


class HttpBackend:
    """A `Backend` over HTTP, for any number of event loops and threads.

    Every argument is optional. `region`, `endpoint_url` and `profile` come before the environment
    and the profile's files, which are read as botocore reads them. `credentials` are `Keys`, or a
    callable that returns them (it may block; it runs in a thread, and again before they expire);
    without them botocore's chain is asked.

    `connect_timeout_seconds` bounds name, TCP, proxy and TLS; `read_timeout_seconds` how long an
    answer may be silent, on top of what a receive waits; `total_timeout_seconds` the call in all,
    waiting for a free connection and every retry included, again on top of the wait. An idle
    connection is closed after `idle_timeout_seconds`. Each event loop has at most `max_connections`
    connections for calls and `max_poll_connections` for receives that wait. `retry` is the budget
    of one call; `RetryPolicy(max_attempts=1)` leaves retrying to the caller. `hooks` hear the
    events of `pumphouse.http.events`. `tls_context` replaces the verifying default.

    A call raises what `Backend` promises. Raises `UsageError` for an option that can't be used.
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        credentials: Keys | Source | None = None,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        retry: RetryPolicy = RETRY,
        tls_context: ssl.SSLContext | None = None,
        connect_timeout_seconds: float = Options.connect_timeout_seconds,
        read_timeout_seconds: float = Options.read_timeout_seconds,
        total_timeout_seconds: float = Options.total_timeout_seconds,
        idle_timeout_seconds: float = Options.idle_timeout_seconds,
        max_connections: int = Options.max_connections,
        max_poll_connections: int = Options.max_poll_connections,
        max_answer_bytes: int = Options.max_answer_bytes,
    ) -> None:
        if region is not None:
            check_region(region)
        if endpoint_url is not None:
            check_endpoint_url(endpoint_url)
        if credentials is not None and not (isinstance(credentials, Keys) or callable(credentials)):
            raise UsageError(
                "credentials have to be pumphouse.Keys or a callable that returns them"
            )
        if not isinstance(retry, RetryPolicy):
            raise UsageError(f"retry has to be a RetryPolicy, not {type(retry).__name__}")
        self._options = Options(
            connect_timeout_seconds,
            read_timeout_seconds,
            total_timeout_seconds,
            idle_timeout_seconds,
            max_connections,
            max_poll_connections,
            max_answer_bytes,
        )
        self.clock = clock or RealClock()
        self.hooks = hooks or Hooks()
        self._retry = retry
        self._configuration = Configuration(
            region=region, endpoint_url=endpoint_url, profile=profile
        )
        self._keeper = Keeper(
            credentials or BotocoreChain(self._configuration), self.clock, self.hooks
        )
        self._tls: ssl.SSLContext | None = tls_context
        self._endpoints: dict[str, Endpoint] = {}  # by service, where one is for all operations
        self._regional: dict[tuple[str, str], Endpoint] = {}  # where the operation's region decides
        self._writers: dict[Endpoint, RequestWriter] = {}
        self._skew = 0.0
        self._dated = (-1, "")
        self._loops = Loops(self._options, self.clock, lambda: self._tls, self._after_fork)

    # --- one call -------------------------------------------------------------------------------

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one action and return its result; see `Backend` for what it raises."""
        pool = self._loops.pool()
        call = Call(operation, self.clock.monotonic(), self._options.total_timeout_seconds)
        doubt: OutcomeUnknownError | None = None
        corrected = False
        while True:
            try:
                answer = await self._attempt(pool, call)
                result: R = call.wire.decode(operation, answer.status, answer.headers, answer.body)
            except PumphouseError as error:
                failed = call.veiled(error)
            else:
                if self.hooks.listening:
                    self._tell_end(call, None)
                return result
            self._tell_end(call, failed)
            if isinstance(failed, ClockSkewError) and not corrected:
                corrected = True
                if self._correct_clock(call):
                    call.again(self.clock.monotonic())
                    continue  # it was refused unread, so this is no retry
            if (delay := self._delay(call, failed)) is None:
                raise rules.outcome(failed, doubt, operation)
            if isinstance(failed, OutcomeUnknownError):
                doubt = rules.heavier(doubt, failed)
            if self.hooks.wanted(RetryScheduled):
                self.hooks.emit(RetryScheduled(operation.action, call.attempt, delay, failed))
            await self.clock.sleep(delay)
            call.attempt += 1
            call.again(self.clock.monotonic())

    async def _attempt(self, pool: LoopPool, call: Call) -> Answer:
        """Send the request once. Raises what `of_failure` makes of an attempt without answer."""
        operation = call.operation
        clock = self.clock
        if self.hooks.listening and self.hooks.wanted(RequestStarted):
            self.hooks.emit(RequestStarted(operation.action, call.attempt))
        endpoint = self._endpoints.get(operation.service)
        if endpoint is None:
            endpoint = await self._in_time(self._locate(operation), call, "the configuration")
        keys = self._keeper.current()
        if keys is None:
            keys = await self._in_time(self._keeper.get(), call, "the credentials")
        call.keys = keys
        call.skew = self._skew
        writer = self._writers.get(endpoint)
        if writer is None or writer.keys is not keys:
            writer = self._writers[endpoint] = RequestWriter(endpoint, keys, USER_AGENT)
        lane = pool.lane(endpoint.origin, call.wait > 0)
        silence = self._options.read_timeout_seconds + call.wait
        now = call.began
        while True:
            if (connection := lane.take(now)) is None:
                with nothing_leaves():
                    connection = await lane.wait(call.deadline)
                now = clock.monotonic()
            request = writer.write(call.wire.content_type, call.target, call.body, self._date())
            waiter = connection.exchange(request, now, silence, call.deadline)
            try:
                call.answer = await waiter
                return call.answer
            except asyncio.CancelledError:
                connection.abandon(waiter)
                raise
            except ExchangeFailed as failure:
                stale = connection.exchanges > 0
                if stale and (failure.silent or not failure.left):
                    lane.distrust(now)  # its neighbours fared no better
                if not stale or failure.left:
                    raise rules.of_failure(failure, operation.action) from None
                now = clock.monotonic()  # it was closed while idle, nothing was sent: take another

    async def _in_time(self, work: Coroutine[Any, Any, T], call: Call, what: str) -> T:
        """Wait for what has to be there before a request can be sent, as long as the call may."""
        seconds = call.deadline - self.clock.monotonic()
        try:
            async with timeout(self.clock, seconds):
                with nothing_leaves():
                    return await work
        except TimeoutError:
            raise NetworkError(
                f"{call.operation.action} was not sent: {what} did not come in time"
            ) from None

    def _delay(self, call: Call, error: PumphouseError) -> float | None:
        """How long to wait before the next attempt, or None when there is none."""
        asked = 0.0
        if isinstance(error, ServiceError):
            if isinstance(error, ThrottledError):
                asked = call.retry_after()
                error.retry_after_seconds = max(asked, self._retry.delay(call.attempt))
            elif error.code == "ExpiredToken" and call.keys is not None:
                self._keeper.expire(call.keys)
            elif isinstance(error, QueueDoesNotExist):
                self._explain(call, error)
        if not rules.may_repeat(error, call.operation):
            return None
        now = self.clock.monotonic()
        policy = NO_RETRIES if one_try.get() else self._retry
        delay = policy.next_delay(call.attempt, now - call.started, at_least_seconds=asked)
        return None if delay is None or now + delay >= call.deadline else delay

    def _explain(self, call: Call, error: QueueDoesNotExist) -> None:
        named = region_hint(getattr(call.operation, "queue_url", ""))
        endpoint = self._endpoints.get(call.operation.service)
        if named and endpoint is not None and named != endpoint.region:
            error.add_note(
                f"the queue's URL names the region {named}, and the request went to "
                f"{endpoint.region} at {endpoint.origin}"
            )

    def _tell_end(self, call: Call, error: PumphouseError | None) -> None:
        if self.hooks.wanted(RequestFinished):
            status = call.answer.status if call.answer is not None else 0
            seconds = self.clock.monotonic() - call.began
            self.hooks.emit(
                RequestFinished(call.operation.action, call.attempt, status, seconds, error)
            )

    # --- time -----------------------------------------------------------------------------------

    def _date(self) -> str:
        """The date to sign with, made once a second."""
        second = int(self.clock.now() + self._skew)
        known, date = self._dated
        if second != known:
            date = amz_date(second)
            self._dated = (second, date)
        return date

    def _correct_clock(self, call: Call) -> bool:
        """Take over the clock of an answer; False where it is what the call was signed by."""
        if call.answer is None:
            return False
        try:
            theirs = parsedate_to_datetime(call.answer.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError, OverflowError):
            return False
        skew = theirs - self.clock.now()
        if abs(skew - call.skew) < SKEW_SECONDS:
            return False
        if abs(skew - self._skew) < SKEW_SECONDS:
            return True  # another call has brought it meanwhile
        self._skew = skew
        _log.warning("this machine's clock is %.0f seconds off; signing by the service's", -skew)
        self.hooks.emit(ClockCorrected(skew))
        return True

    # --- what a call needs ----------------------------------------------------------------------

    async def _locate(self, operation: Operation[Any]) -> Endpoint:
        """The endpoint of an operation; where its own region decides, one for each region."""
        named = next((found for name in _NAMED_BY if (found := getattr(operation, name, None))), "")
        hint = region_hint(named)
        if (known := self._regional.get((operation.service, hint))) is not None:
            return known
        endpoint, fixed = await self._blocking(self._find, operation.service, hint)
        if fixed:
            return self._endpoints.setdefault(operation.service, endpoint)
        return self._regional.setdefault((operation.service, hint), endpoint)

    def _find(self, service: str, hint: str) -> tuple[Endpoint, bool]:
        endpoint, fixed = self._configuration.endpoint(service, hint)
        if endpoint.origin.scheme == "https" and self._tls is None:
            self._tls = tls_context(self._configuration.ca_bundle())
        return endpoint, fixed

    async def _blocking(self, work: Callable[..., T], *args: Any) -> T:
        hold = getattr(self.clock, "hold", nullcontext)  # no virtual time for a real thread
        with hold():
            return await asyncio.to_thread(work, *args)

    def _after_fork(self) -> None:
        self._keeper.after_fork()
        self._configuration.after_fork()

    # --- its life -------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close every connection of every loop; may be called twice.

        A call that is under way ends as `OutcomeUnknownError` where its request has left.
        """
        await self._loops.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def total_timeout_seconds(self) -> float:
        """How long a call may take that waits for nothing."""
        return self._options.total_timeout_seconds

    @property
    def credentials_healthy(self) -> bool:
        """Whether the last try to load or renew the credentials succeeded."""
        return self._keeper.healthy

    def __repr__(self) -> str:
        state = "closed" if self._loops.closed else "open"
        failing = "" if self._keeper.healthy else "; credentials failing"
        return f"<HttpBackend {state}: {self._loops!r}{failing}>"
