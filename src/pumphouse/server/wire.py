"""Any backend as an endpoint: HTTP requests become operations, and results HTTP answers.

`Endpoint.answer` is the whole way of a request: choose the protocol, check the signature, read the
operation, find the region, execute, write the answer. SQS's two protocols and SNS's one are read
and written by their codecs in `protocol/`, signatures are checked in `auth.py`, and what is allowed
or refused is the backend's. Requests come from `connection.py`, or from any ASGI server by way of
`asgi.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec.structs import replace

from pumphouse.backend import Backend
from pumphouse.errors import NetworkError, OutcomeUnknownError, ServiceError
from pumphouse.protocol import sns_query, sqs_json, sqs_query
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import is_queue_url, region_of_host
from pumphouse.protocol.operations import (
    CreateQueueResult,
    GetQueueUrlResult,
    ListDeadLetterSourceQueuesResult,
    ListQueuesResult,
    MessageAttributeValue,
    Operation,
    ReceiveMessage,
    ReceiveMessageResult,
    Result,
    SendMessage,
    SendMessageBatch,
)
from pumphouse.protocol.sns_operations import Publish, PublishBatch
from pumphouse.server.auth import Gate, of_foreign_page
from pumphouse.server.looking import LOOK_PATH, looked

MAX_BODY_BYTES = 8 * 1024 * 1024
"""The largest request body that is read: a batch of 1 MiB in which each byte needs an escape."""

_MAX_SCOPES = 1024
_HOST = re.compile(rb"[A-Za-z0-9._-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")

_log = logging.getLogger("pumphouse.server")


class Request(NamedTuple):
    """An HTTP request, read whole. `headers` has names in lower case; `fields` is as it came."""

    method: str
    path: str
    raw_path: str  # as it stands in the request line, for its signature
    query: bytes
    headers: dict[bytes, bytes]
    fields: list[tuple[bytes, bytes]]
    body: bytes
    origin: str  # the scheme and the address to fall back to where there is no Host


class Response(NamedTuple):
    """An HTTP answer; its length is added when it is sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@runtime_checkable
class Scoped(Protocol):
    """A backend that has more than one region: `Account` does."""

    def within(self, *, region: str) -> Backend:
        """The same store, seen from another region."""
        ...


@runtime_checkable
class Certified(Protocol):
    """A backend that signs notifications: `Account` does."""

    def signing_certificate(self, file_name: str) -> bytes:
        """The certificate of this file name, or nothing."""
        ...


@runtime_checkable
class Guarded(Protocol):
    """A backend that knows what may be asked without a signature: `Account` does."""

    def needs_signature(self, operation: Operation[Any]) -> bool:
        """Whether an operation is carried out only for who has signed it."""
        ...


# --- protocols ----------------------------------------------------------------------------------


class _Json:
    """SQS's JSON protocol, as the endpoint needs it."""

    service = "sqs"

    @staticmethod
    def decode(request: Request) -> Operation[Any]:
        target = request.headers.get(b"x-amz-target", b"").decode("latin-1")
        return sqs_json.decode_request(target, request.body)

    @staticmethod
    def answer(action: str, result: Result, request_id: str) -> Response:
        return Response(200, _headers(_JSON_TYPE, request_id), sqs_json.encode_answer(result))

    @staticmethod
    def error(error: ServiceError, request_id: str) -> Response:
        query_error, body = sqs_json.encode_error(error)
        headers = _headers(_JSON_TYPE, request_id)
        value = _HEADER_UNSAFE.sub(b"?", query_error.encode("ascii", "replace"))
        headers.append((b"x-amzn-query-error", value))
        return Response(error.status, headers, body)


class _Query:
    """SQS's query protocol, as the endpoint needs it."""

    service = "sqs"

    @staticmethod
    def decode(request: Request) -> Operation[Any]:
        url = _base(request) + request.path if len(request.path) > 1 else ""
        return sqs_query.decode_request(_form(request), url)

    @staticmethod
    def answer(action: str, result: Result, request_id: str) -> Response:
        body = sqs_query.encode_answer(action, result, request_id)
        return Response(200, _headers(_XML_TYPE, request_id), body)

    @staticmethod
    def error(error: ServiceError, request_id: str) -> Response:
        body = sqs_query.encode_error(error, request_id)
        return Response(error.status, _headers(_XML_TYPE, request_id), body)


class _Sns:
    """SNS's query protocol, as the endpoint needs it."""

    service = "sns"

    @staticmethod
    def decode(request: Request) -> Operation[Any]:
        return sns_query.decode_request(_form(request))

    @staticmethod
    def answer(action: str, result: Result, request_id: str) -> Response:
        body = sns_query.encode_answer(action, result, request_id)
        return Response(200, _headers(_XML_TYPE, request_id), body)

    @staticmethod
    def error(error: ServiceError, request_id: str) -> Response:
        body = sns_query.encode_error(error, request_id)
        return Response(error.status, _headers(_XML_TYPE, request_id), body)


_Protocol = type[_Json] | type[_Query] | type[_Sns]


def _form(request: Request) -> bytes:
    """The fields of a form: in the body, in the query string, or in both."""
    if request.method == "GET" or not request.body:
        return request.query
    return request.query + b"&" + request.body if request.query else request.body


_HEADER_UNSAFE = re.compile(rb"[^\x20-\x7e]")
_JSON_TYPE = sqs_json.CONTENT_TYPE.encode()
_XML_TYPE = sqs_query.CONTENT_TYPE.encode()


_FOR_SNS = re.compile(
    rb"(?:^|&)(?:Version=2010-03-31|Action=ConfirmSubscription|Action=Unsubscribe)(?:&|$)"
)
_SNS_SCOPE = b"/sns/aws4_request"


def _headers(content_type: bytes, request_id: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", content_type), (b"x-amzn-requestid", request_id.encode())]


def _speaks(request: Request) -> _Protocol:
    """The protocol of a request: a target or a JSON type means JSON, all else is a form."""
    if b"x-amz-target" in request.headers:
        return _Json
    kind = request.headers.get(b"content-type", b"")
    if b"json" in kind.lower() and request.method == "POST":
        return _Json
    if _SNS_SCOPE in request.headers.get(b"authorization", b""):
        return _Sns
    return _Sns if _FOR_SNS.search(_form(request)) else _Query


# --- the endpoint -------------------------------------------------------------------------------


class Endpoint:
    """A backend behind SQS's own wire.

    With a `gate`, only requests that are signed with its keys are carried out. The health of the
    endpoint is at `/health`, and what lies in a queue of an account under `/_pumphouse/messages/`.
    """

    def __init__(
        self, backend: Backend, *, gate: Gate | None = None, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._backend = backend
        self._gate = gate
        self.max_body_bytes = max_body_bytes
        self._scopes: dict[bytes, Backend] = {}
        self._parked: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._series = str(uuid4())[:24]
        self._requests = 0

    @property
    def parked(self) -> int:
        """How many receives are under way, most of them waiting for a message."""
        return len(self._parked)

    def stop(self) -> None:
        """Answer every parked receive with no message, now and from now on."""
        self._stopping = True
        for task in self._parked:
            task.cancel()

    async def answer(self, request: Request) -> Response:
        """The answer to a request.

        Raises nothing but cancellation and `OutcomeUnknownError`: where the backend can't say what
        became of the request, its client must not be told either.
        """
        if request.path == "/health":
            return _health(request)
        if request.path.endswith(".pem") and isinstance(self._backend, Certified):
            return _certificate(request, self._backend)
        foreign = of_foreign_page(request.headers)
        if request.path.startswith(LOOK_PATH) and not foreign:
            backend = self._backend if self._gate is None else None
            return Response(*await looked(request.method, request.path, backend))
        request_id = self._next_id()
        protocol = _speaks(request)
        try:
            if foreign:
                raise fault("AccessDenied", _FOREIGN)
            if request.method not in ("POST", "GET"):
                raise fault("UnknownOperationException")
            operation = None
            if self._gate is not None:
                if protocol is _Sns and b"authorization" not in request.headers:
                    operation = self._by_link(request)
                if operation is None:
                    self._gate.check(request, protocol.service)
            if operation is None:
                operation = protocol.decode(request)
            url = getattr(operation, "queue_url", None)
            if url and request.headers.get(b"host", b"").decode("latin-1") not in url:
                operation = _to_here(operation, url, request)
            if b"x-amzn-trace-id" in request.headers:
                operation = _traced(operation, request.headers[b"x-amzn-trace-id"])
            result = await self._execute(self._scope(request), operation)
            if type(result) in _WITH_URLS:
                result = _from_here(result, request)
            return protocol.answer(operation.action, result, request_id)
        except ServiceError as error:
            return protocol.error(error, request_id)
        except OutcomeUnknownError:
            raise
        except NetworkError as error:
            _log.warning("the backend can't be reached: %s", error)
            return protocol.error(fault("ServiceUnavailable", _UNAVAILABLE), request_id)
        except Exception:
            _log.exception("a request failed")
            return protocol.error(fault("InternalError", _INTERNAL), request_id)

    def _by_link(self, request: Request) -> Operation[Any] | None:
        """The operation of a link in a notification, which needs no signature: its token or the ARN
        is what it takes."""
        if not isinstance(self._backend, Guarded):
            return None
        operation = sns_query.decode_request(_form(request))
        return None if self._backend.needs_signature(operation) else operation

    def _next_id(self) -> str:
        """A request id in the shape of AWS's: one random series, counted."""
        self._requests += 1
        return f"{self._series}{self._requests:012x}"

    def too_large(self, request: Request) -> Response:
        """The answer to a request whose body is over `max_body_bytes`, which nobody has read."""
        words = f"The request body is over {self.max_body_bytes} bytes."
        return _speaks(request).error(fault("RequestEntityTooLarge", words), self._next_id())

    def _scope(self, request: Request) -> Backend:
        """The backend of the region that the credential scope names, or the path of a link."""
        claim = request.headers.get(b"authorization", b"").partition(b",")[0]
        found = self._scopes.get(claim) if claim else None
        if found is None:
            parts = claim.split(b"/")
            region = parts[2].decode("latin-1") if len(parts) == 5 else ""
            region = region or request.path.strip("/")
            found = self._backend
            if isinstance(found, Scoped) and region and region_of_host(region) == region:
                found = found.within(region=region)
            if len(self._scopes) >= _MAX_SCOPES:
                self._scopes.clear()
            if claim:
                self._scopes[claim] = found
        return found

    async def _execute(self, backend: Backend, operation: Operation[Any]) -> Result:
        if type(operation) is not ReceiveMessage:
            return cast(Result, await backend.execute(operation))
        if self._stopping:
            operation = replace(operation, wait_time_seconds=0)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._parked.add(task)
        try:
            return await backend.execute(operation)
        except asyncio.CancelledError:
            if not self._stopping or task.uncancel():
                raise
            return ReceiveMessageResult()
        finally:
            self._parked.discard(task)


_UNAVAILABLE = "The service is unavailable. Please try again."
_FOREIGN = "Web pages of other sites are not answered here."
_INTERNAL = "We encountered an internal error. Please try again."


def _health(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        return Response(405, [(b"allow", b"GET, HEAD")], b"")
    return Response(200, [(b"content-type", b"application/json")], b'{"status":"ok"}\n')


def _certificate(request: Request, backend: Certified) -> Response:
    """The certificate that notifications name, for whoever verifies them."""
    pem = backend.signing_certificate(request.path.rpartition("/")[2])
    if not pem or request.method not in ("GET", "HEAD"):
        return Response(404 if not pem else 405, [(b"content-type", b"text/plain")], b"")
    return Response(200, [(b"content-type", b"application/x-pem-file")], pem)


def _traced(operation: Operation[Any], header: bytes) -> Operation[Any]:
    """A request's trace header becomes that of the messages it sends, unless they have one."""
    trace = {_TRACE: MessageAttributeValue("String", header.decode("latin-1"))}
    if isinstance(operation, SendMessage):
        return replace(
            operation, message_system_attributes=trace | (operation.message_system_attributes or {})
        )
    if isinstance(operation, Publish | PublishBatch):
        return replace(operation, trace_header=header.decode("latin-1"))
    if isinstance(operation, SendMessageBatch):
        entries = [
            replace(
                entry, message_system_attributes=trace | (entry.message_system_attributes or {})
            )
            for entry in operation.entries
        ]
        return replace(operation, entries=entries)
    return operation


_TRACE = "AWSTraceHeader"

# --- queue URLs ---------------------------------------------------------------------------------

_WITH_URLS = frozenset(
    {CreateQueueResult, GetQueueUrlResult, ListQueuesResult, ListDeadLetterSourceQueuesResult}
)


def _base(request: Request) -> str:
    """Where the request came in: its scheme, and what its client calls this host."""
    host = request.headers.get(b"host", b"")
    if _HOST.fullmatch(host):
        return f"{request.origin.partition('://')[0]}://{host.decode()}"
    return request.origin


def _to_here(operation: Operation[Any], url: str, request: Request) -> Operation[Any]:
    """An operation on a queue that has our address, whatever address its client knows it by."""
    if not is_queue_url(url):
        return operation
    try:
        path = urlsplit(url).path
    except ValueError:  # an address that is none; the backend says so
        return operation
    return replace(operation, queue_url=_base(request) + path)


def _from_here(result: Any, request: Request) -> Any:
    """A result whose queue URLs lead to where the request came in."""
    base = _base(request)
    if isinstance(result, CreateQueueResult | GetQueueUrlResult):
        return replace(result, queue_url=base + urlsplit(result.queue_url).path)
    return replace(result, queue_urls=[base + urlsplit(url).path for url in result.queue_urls])
