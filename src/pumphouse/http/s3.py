"""`S3BlobStore`: large bodies as objects of an S3 bucket, over the wire client's own connections.

Three requests of S3's REST interface ("PutObject", "GetObject" and "DeleteObject" in the API
reference), each as good twice as once, so that whatever brought no answer is tried again within one
budget. Objects are reached as `bucket.host/key` on AWS and as `host/bucket/key` at any other
endpoint. Multipart uploads, listings and encryption settings are the bucket's own business.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from html import unescape
from types import TracebackType
from typing import Self
from urllib.parse import quote

from pumphouse.backoff import RetryPolicy
from pumphouse.clock import Clock, RealClock, timeout
from pumphouse.errors import (
    BlobDamagedError,
    BlobMissingError,
    ConfigError,
    NetworkError,
    NoCredentialsError,
    OutcomeUnknownError,
    PumphouseError,
    ThrottledError,
    TransientError,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.hooks import Hooks
from pumphouse.http.connection import Answer, ExchangeFailed
from pumphouse.http.credentials import BotocoreChain, Keeper, Source
from pumphouse.http.dial import tls_context
from pumphouse.http.endpoint import Configuration, Endpoint, check_endpoint_url, check_region
from pumphouse.http.loops import Loops
from pumphouse.http.options import RETRY, Options
from pumphouse.http.retry import of_failure
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.names import is_aws_host
from pumphouse.protocol.sigv4 import Keys, amz_date, payload_hash, sign

MAX_OBJECT_BYTES = 268_435_456
"""The largest object that is read: 256 MiB."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MAX_KEY_BYTES = 1_024
_FIELD = re.compile(r"<(Code|Message)>([^<]{0,1000})</")
_AGAIN = (NetworkError, OutcomeUnknownError, ThrottledError, TransientError, NoCredentialsError)


class S3BlobStore:
    """A `BlobStore` in a bucket that exists.

    `region`, `endpoint_url`, `profile` and `credentials` mean what they mean for `HttpBackend`, and
    are found where they are not given as it finds them (`AWS_ENDPOINT_URL_S3` among them).
    `timeout_seconds` bounds one attempt. Keys are any text of 1,024 bytes, with no part `.` or `..`
    between slashes, which what is between here and S3 may take for directories. Close it, or use
    it as `async with`.
    """

    def __init__(
        self,
        bucket: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        credentials: Keys | Source | None = None,
        retry: RetryPolicy = RETRY,
        timeout_seconds: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(f"{bucket!r} is no name of a bucket")
        if region is not None:
            check_region(region)
        if endpoint_url is not None:
            check_endpoint_url(endpoint_url)
        self.bucket = bucket
        self._retry = retry
        self._clock: Clock = clock or RealClock()
        self._options = Options(
            read_timeout_seconds=min(30.0, timeout_seconds),
            total_timeout_seconds=timeout_seconds,
            max_answer_bytes=MAX_OBJECT_BYTES + 1,
        )
        self._configuration = Configuration(
            region=region, endpoint_url=endpoint_url, profile=profile
        )
        source = credentials or BotocoreChain(self._configuration)
        self._keeper = Keeper(source, self._clock, Hooks())
        self._endpoint: Endpoint | None = None
        self._tls: ssl.SSLContext | None = None
        self._loops = Loops(self._options, self._clock, lambda: self._tls, self._after_fork)

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, in place of what is there; S3 has checked its SHA-256 when this
        returns."""
        await self._call("PUT", key, data)

    async def get(self, key: str, max_bytes: int) -> bytes:
        """The object. Raises `BlobMissingError`, and `BlobDamagedError` above `max_bytes`."""
        body = (await self._call("GET", key, b"")).body
        if len(body) > max_bytes:
            raise BlobDamagedError(f"the blob {key!r} is larger than the {max_bytes} bytes allowed")
        return body

    async def delete(self, key: str) -> None:
        """Remove the object; does nothing where there is none."""
        await self._call("DELETE", key, b"")

    def check_key(self, key: str) -> None:
        """Raise `UsageError` for what can't be a key."""
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= _MAX_KEY_BYTES or {".", ".."} & set(key.split("/")):
            raise UsageError(f"{key!r} is no key for a blob")

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._loops.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # --- one call -------------------------------------------------------------------------------

    async def _call(self, method: str, key: str, body: bytes) -> Answer:
        """Try until there is an answer or the policy ends; an answer of 2xx is returned."""
        self.check_key(key)
        began = self._clock.monotonic()
        attempt = 1
        while True:
            try:
                return self._read(key, await self._attempt(method, key, body))
            except _AGAIN as error:
                elapsed = self._clock.monotonic() - began
                wait = self._retry.next_delay(attempt, elapsed)
                if wait is None:
                    raise
                if isinstance(error, TransientError) and error.code == "ExpiredToken":
                    self._keeper.expire(await self._keeper.get())
            await self._clock.sleep(wait)
            attempt += 1

    async def _attempt(self, method: str, key: str, body: bytes) -> Answer:
        pool = self._loops.pool()
        deadline = self._clock.monotonic() + self._options.total_timeout_seconds
        try:
            async with timeout(self._clock, self._options.total_timeout_seconds):
                endpoint = self._endpoint or await self._locate()
                keys = self._keeper.current() or await self._keeper.get()
        except TimeoutError:
            raise NetworkError(
                f"{method} of a blob was not sent: the credentials or the configuration did not "
                "come in time"
            ) from None
        path = f"{endpoint.path.rstrip('/')}/{quote(key, safe='/')}"
        url = f"{endpoint.origin.scheme}://{endpoint.host_header}{path}"
        headers = {"Host": endpoint.host_header, "X-Amz-Content-SHA256": payload_hash(body)}
        headers |= sign(
            keys,
            endpoint.region,
            "s3",
            amz_date(self._clock.now()),
            method,
            url,
            headers,
            body,
        )
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
        lines.append(f"Content-Length: {len(body)}")
        request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body

        lane = pool.lane(endpoint.origin, False)
        now = self._clock.monotonic()
        connection = lane.take(now) or await lane.wait(deadline)
        waiter = connection.exchange(request, now, self._options.read_timeout_seconds, deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            connection.abandon(waiter)
            raise
        except ExchangeFailed as failure:
            raise of_failure(failure, f"{method} of a blob") from None

    def _read(self, key: str, answer: Answer) -> Answer:
        """The answer, if it is 2xx; raises what it means otherwise."""
        if 200 <= answer.status < 300:
            return answer
        text = answer.body[:16_384].decode(errors="replace")
        found = {name: unescape(value) for name, value in _FIELD.findall(text)}
        code = found.get("Code", "")
        if code == "NoSuchKey":
            raise BlobMissingError(f"no blob {key!r} in the bucket {self.bucket!r}")
        error: PumphouseError
        if code in ("NoSuchBucket", "PermanentRedirect", "AllAccessDisabled"):
            error = ConfigError(f"the bucket {self.bucket!r}: {code}: {found.get('Message', '')}")
        elif code:
            error = from_answer(code, found.get("Message", ""), status=answer.status)
        else:
            error = UnexpectedAnswerError(answer.status, text[:200])
        raise error

    async def _locate(self) -> Endpoint:
        def find() -> Endpoint:
            endpoint, _ = self._configuration.endpoint("s3", "")
            host = endpoint.host_header
            scheme = endpoint.origin.scheme
            if is_aws_host(host) and "." not in self.bucket:
                url = f"{scheme}://{self.bucket}.{host}"
            else:
                url = f"{scheme}://{host}{endpoint.path.rstrip('/')}/{self.bucket}"
            if scheme == "https" and self._tls is None:
                self._tls = tls_context(self._configuration.ca_bundle())
            return Endpoint("s3", url, endpoint.region)

        self._endpoint = await asyncio.to_thread(find)
        return self._endpoint

    def _after_fork(self) -> None:
        self._keeper.after_fork()
        self._configuration.after_fork()

    def __repr__(self) -> str:
        return f"S3BlobStore({self.bucket!r}, {self._loops!r})"
