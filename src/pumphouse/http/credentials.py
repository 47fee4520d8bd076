"""Credentials that are there when they are needed: loaded once, renewed early, never twice at once.

A *source* is a plain callable that blocks and returns `Keys`; `BotocoreChain` is botocore's own
chain (environment, profile, SSO, web identity, container, instance, process), of which its first
step is taken without loading botocore. The keeper
runs it in a thread, one run at a time for all event loops and threads, before the keys expire.
When a renewal fails, the old keys are used for as long as they are valid, and the next try waits:
exponentially longer, with full jitter. `healthy` and the events say so; nothing needs a restart.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from pumphouse.backoff import full_jitter
from pumphouse.clock import Clock
from pumphouse.errors import ConfigError, NoCredentialsError, PumphouseError, UsageError, own
from pumphouse.hooks import Hooks
from pumphouse.http.events import CredentialsFailed, CredentialsLoaded
from pumphouse.protocol.sigv4 import Keys

if TYPE_CHECKING:
    from pumphouse.http.endpoint import Configuration

Source = Callable[[], Keys]

RENEW_BEFORE_SECONDS = 800.0
"""Keys are renewed this long before they expire, or in the last third of a shorter life."""
RETRY_BASE_SECONDS = 0.5
RETRY_CAP_SECONDS = 30.0

_ANY_PAIR = (
    "; at an endpoint on this machine any pair will do, unless it checks them: "
    "AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any"
)

_NEVER = float("inf")
_THREAD = "pumphouse-credentials"


class Keeper:
    """Keeps keys from one source; or keys that stay as they are."""

    def __init__(self, source: Keys | Source, clock: Clock, hooks: Hooks) -> None:
        self._clock = clock
        self._hooks = hooks
        self._keys: Keys | None = None
        self._renew_at = 0.0  # seconds since the epoch
        if isinstance(source, Keys):
            if fault := _fault(source):
                raise UsageError(fault)
            self._keys, self._renew_at = source, _NEVER
            self._source: Source = partial(copy.copy, source)
        else:
            self._source = source
        self._failures = 0
        self._retry_at = 0.0
        self._error: PumphouseError | None = None
        self.after_fork()

    def after_fork(self) -> None:
        """Forget a renewal that ran in another process."""
        self._lock = threading.Lock()
        self._running: Future[None] | None = None

    @property
    def healthy(self) -> bool:
        """Whether the last try to load or renew succeeded."""
        return self._error is None

    def current(self) -> Keys | None:
        """The keys, when they are good and not due for renewal; costs nothing."""
        return self._keys if self._clock.now() < self._renew_at else None

    async def get(self) -> Keys:
        """Keys to sign with. Starts a renewal when one is due and waits for it only without keys.

        Raises `NoCredentialsError` when there are none and when loading them failed, `ConfigError`
        when that can't ever work as it is configured; the same error again, without another try,
        until the time for the next try has come.
        """
        while True:
            if (keys := self.current()) is not None:
                return keys
            running = self._begin()
            if (keys := self._valid()) is not None:
                return keys  # renewed beside it
            if running is not None:
                hold = getattr(self._clock, "hold", nullcontext)  # no virtual time for a thread
                with hold():
                    await asyncio.wrap_future(running)
                if (keys := self._valid()) is not None:
                    return keys
            if self._error is not None:
                raise own(self._error)  # each caller its own: they add to its traceback

    def expire(self, keys: Keys) -> None:
        """AWS calls these keys expired, whatever they said themselves."""
        with self._lock:
            if self._keys is not keys:
                return  # others have said so before
            self._keys = None
            self._renew_at = 0.0
        if (forget := getattr(self._source, "forget", None)) is not None:
            forget()

    def _valid(self) -> Keys | None:
        keys = self._keys
        if keys is None or (keys.expires_at is not None and self._clock.now() >= keys.expires_at):
            return None
        return keys

    def _begin(self) -> Future[None] | None:
        """The renewal that runs, a new one, or None when none is due or its time has not come."""
        here: Future[None] | None = None
        with self._lock:
            due = self.current() is None and self._clock.now() >= self._retry_at
            if self._running is None and due:
                running: Future[None] = Future()
                running.set_running_or_notify_cancel()
                thread = threading.Thread(
                    target=self._renew, args=(running,), name=_THREAD, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    if threading.main_thread().is_alive():
                        raise NoCredentialsError(
                            "no thread could be started for the credentials"
                        ) from None
                    here = running  # the interpreter exits, and gives no thread
                self._running = running  # once its thread is there to end it
            found = self._running
        if here is not None:
            self._renew_here(here)
        return found

    def _renew_here(self, running: Future[None]) -> None:
        """As in a thread of its own: what is logged is told apart by the thread's name."""
        thread = threading.current_thread()
        name, thread.name = thread.name, _THREAD
        try:
            self._renew(running)
        finally:
            thread.name = name

    def _renew(self, running: Future[None]) -> None:
        """One run of the source, in its own thread."""
        try:
            keys = self._source()
            if fault := _fault(keys):
                raise NoCredentialsError(fault)
            if keys.expires_at is not None and keys.expires_at <= self._clock.now():
                raise NoCredentialsError(_EXPIRED)
        except BaseException as error:  # whoever waits is told, whatever the source does
            event: object = self._failed(_explained(error))
        else:
            event = self._loaded(keys)
        self._hooks.emit(event)
        running.set_result(None)

    def _loaded(self, keys: Keys) -> CredentialsLoaded:
        with self._lock:
            self._running = None
            self._keys = keys  # before the time, or another thread takes the old ones as renewed
            self._renew_at = _renewal(keys, self._clock.now())
            self._retry_at = 0.0
            self._failures = 0
            self._error = None
        return CredentialsLoaded(keys.expires_at)

    def _failed(self, error: PumphouseError) -> CredentialsFailed:
        with self._lock:
            self._running = None
            self._failures += 1
            delay = full_jitter(
                self._failures, base_seconds=RETRY_BASE_SECONDS, cap_seconds=RETRY_CAP_SECONDS
            )
            self._error = error
            self._retry_at = self._clock.now() + delay
        return CredentialsFailed(error, self._failures, delay, self._valid() is not None)

    def __repr__(self) -> str:
        state = "not loaded" if self._keys is None else "loaded"
        return f"<Keeper {state}{'' if self.healthy else ', failing'}>"


def _fault(keys: object) -> str:
    """What makes it impossible to sign with something, in words that repeat none of it; or ""."""
    if not isinstance(keys, Keys):
        return (
            f"the source of credentials returned {type(keys).__name__}; "
            "it has to be a plain function that returns pumphouse.Keys"
        )
    if not keys.access_key_id or not keys.secret_access_key:
        return "the access key id or the secret access key is empty"
    for name in ("access_key_id", "secret_access_key", "session_token"):
        text = getattr(keys, name) or ""
        good = isinstance(text, str) and text.isprintable() and text == text.strip()
        if good and name != "secret_access_key":  # the others stand in a header
            good = text.isascii() and " " not in text
        if not good:
            return f"{name} holds what no key has; is there a space or a line break at its end?"
    return ""


_EXPIRED = (
    "the credentials that were loaded have expired already; is the clock of this machine right?"
)


def _renewal(keys: Keys, now: float) -> float:
    if keys.expires_at is None:
        return _NEVER
    return keys.expires_at - min(RENEW_BEFORE_SECONDS, max(0.0, keys.expires_at - now) / 3)


def _explained(error: BaseException) -> PumphouseError:
    """The error as callers see it: `NoCredentialsError` where loading may succeed another time, as
    whatever a callable raises, and `ConfigError` where botocore says what is configured wrongly.
    What a credential process printed may hold a secret."""
    if isinstance(error, PumphouseError):
        return error
    if isinstance(error, RuntimeError) and "credentials are still expired" in str(error):
        return NoCredentialsError(_EXPIRED)  # botocore's words for it
    name = type(error).__name__
    provider = getattr(error, "kwargs", {}).get("provider", "")
    told = f"the credentials could not be loaded: {name}"
    if type(error).__module__ != "botocore.exceptions":
        return NoCredentialsError(told)
    kind = NoCredentialsError if _passes(error) else ConfigError
    return kind(told if provider == "custom-process" else f"{told}: {error}")


_PASSING = frozenset(
    {"CredentialRetrievalError", "MetadataRetrievalError", "HTTPClientError", "ConnectionError"}
)


def _passes(error: BaseException) -> bool:
    """Whether an error of botocore's may be over the next time: something did not answer."""
    if any(kind.__name__ in _PASSING for kind in type(error).__mro__):
        return True
    answer: Any = getattr(error, "response", {})
    status: int = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status == 429 or status >= 500


_WIRE_LOGS = ("botocore.auth", "botocore.endpoint", "botocore.parsers", "botocore.utils")


def _unheard(record: logging.LogRecord) -> bool:
    """Keeps what botocore exchanges for credentials out of its logs of level DEBUG.

    They show whole requests and answers, keys included. What botocore does for others is theirs.
    """
    return record.levelno > logging.DEBUG or record.threadName != _THREAD


def _of_environment() -> Keys | None:
    """What botocore's chain finds first, unless it is half a pair or expires."""
    environ = os.environ
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return Keys(access_key, secret_key, token or None)


class BotocoreChain:
    """botocore's chain as a source; it remembers where it found credentials, as botocore does.

    It is loaded unless the environment holds a whole pair that does not expire, and names no
    profile.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._found: Any = None
        for name in _WIRE_LOGS:
            logging.getLogger(name).addFilter(_unheard)  # which is there once, however often

    def __call__(self) -> Keys:
        found = self._found  # `forget` may come in between
        if found is None:
            if not self._configuration.names_profile and (keys := _of_environment()) is not None:
                return keys
            found = self._found = self._configuration.session.get_credentials()
            if found is None:
                local = self._configuration.on_this_machine
                raise NoCredentialsError(
                    "no AWS credentials in the environment, the profile, or the instance: set "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (in Python also "
                    "credentials=…)" + (_ANY_PAIR if local else "")
                )
        frozen = found.get_frozen_credentials()
        access_key, secret_key = frozen.access_key, frozen.secret_key
        if not access_key or not secret_key:
            raise NoCredentialsError(
                "the AWS credentials that were found have no access key or no secret key"
            )
        expiry = getattr(found, "_expiry_time", None)
        return Keys(
            access_key,
            secret_key,
            frozen.token or None,
            expiry.timestamp() if expiry is not None else None,
        )

    def forget(self) -> None:
        """Look for credentials anew: those that were found are refused as expired."""
        self._found = None
        self._configuration.new_session()

    def __repr__(self) -> str:
        return "BotocoreChain()"
