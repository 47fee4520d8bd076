"""One call on its way through its attempts: its request, its deadline, and what came of it so far.

How each service's operations are written and its answers read is said here, once; when to send, and
whether to send again, is `client.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pumphouse.errors import PumphouseError
from pumphouse.http import retry as rules
from pumphouse.http.connection import Answer
from pumphouse.protocol import sns_query, sqs_json
from pumphouse.protocol.operations import Operation
from pumphouse.protocol.sigv4 import Keys

MAX_RETRY_AFTER_SECONDS = 60.0
MIN_SECRET_CHARACTERS = 16
"""What is shorter is no key of AWS's; a local endpoint takes `any`, which is a word as well."""


class Wire(NamedTuple):
    """How a service's operations are written and its answers read."""

    content_type: str
    encode: Callable[[Operation[Any]], tuple[str, bytes]]
    decode: Callable[[Operation[Any], int, Mapping[str, str], bytes], Any]


WIRES: dict[str, Wire] = {
    "sqs": Wire(sqs_json.CONTENT_TYPE, sqs_json.encode_request, sqs_json.decode_answer),
    "sns": Wire(sns_query.CONTENT_TYPE, sns_query.encode_request, sns_query.decode_answer),
}
"""The protocol of each service."""


class Call:
    """A call. `keys` and `skew` are what its latest attempt was signed with."""

    __slots__ = (
        "answer",
        "attempt",
        "began",
        "body",
        "deadline",
        "keys",
        "operation",
        "skew",
        "started",
        "target",
        "wait",
        "wire",
    )

    def __init__(self, operation: Operation[Any], now: float, total_seconds: float) -> None:
        self.operation = operation
        self.wire = WIRES[operation.service]
        self.target, self.body = self.wire.encode(operation)
        self.wait = rules.wait_seconds(operation)
        self.started = self.began = now
        self.deadline = now + total_seconds + self.wait
        self.attempt = 1
        self.keys: Keys | None = None
        self.skew = 0.0
        self.answer: Answer | None = None

    def again(self, now: float) -> None:
        """Another attempt begins."""
        self.began = now
        self.answer = None

    def retry_after(self) -> float:
        """The seconds that the answer's header `Retry-After` asks for, bounded; 0 for none."""
        text = self.answer.headers.get("retry-after", "") if self.answer is not None else ""
        return min(float(text), MAX_RETRY_AFTER_SECONDS) if text.isdecimal() else 0.0

    def veiled(self, error: PumphouseError) -> PumphouseError:
        """The error, without the session token and the keys that its answer repeats.

        AWS explains a wrong signature with the canonical request, token and all, and a proxy's page
        may show any header.
        """
        answer, keys = self.answer, self.keys
        if answer is None or keys is None:
            return error
        body = answer.body
        for secret in (keys.session_token, keys.secret_access_key):
            if secret and len(secret) >= MIN_SECRET_CHARACTERS:
                body = body.replace(secret.encode(), b"...")
        if body is answer.body:
            return error
        try:
            self.wire.decode(self.operation, answer.status, answer.headers, body)
        except PumphouseError as veiled:
            veiled.__context__ = None  # the other one
            return veiled
        return error
