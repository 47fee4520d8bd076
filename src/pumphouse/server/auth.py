"""Who may ask: the check of a request's signature against one key pair, and of web pages.

The errors of signatures, their statuses and their words are AWS's ("Common error types" in the API
reference). How a signature is computed is in `protocol/sigv4.py`. Presigned URLs are not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import urlsplit

from pumphouse.clock import Clock, RealClock
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import is_loopback
from pumphouse.protocol.sigv4 import (
    ALGORITHM,
    Authorization,
    Keys,
    amz_date,
    matches,
    parse_authorization,
)

MAX_SKEW_SECONDS = 15 * 60
"""How far a request's date may be from the clock, both ways."""


def of_foreign_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends a request for a page that is not of this machine.

    Any page may send a form to a port of the machine that it is looked at on, and a page whose own
    name is made to lead there may read the answer. Browsers say whose a page is (`Origin`, and
    `Sec-Fetch-Site` where they send no origin); no SDK says either.
    """
    if (origin := headers.get(b"origin")) is not None:
        return not _is_here(origin)
    site = headers.get(b"sec-fetch-site", b"none")
    if site == b"none":
        return False
    return site == b"cross-site" or not _is_here(b"//" + headers.get(b"host", b""))


def _is_here(address: bytes) -> bool:
    try:
        return is_loopback(urlsplit(address.decode("latin-1")).hostname or "")
    except ValueError:
        return False


class SignedRequest(Protocol):
    """What is read of a request."""

    @property
    def method(self) -> str: ...
    @property
    def raw_path(self) -> str: ...
    @property
    def query(self) -> bytes: ...
    @property
    def headers(self) -> dict[bytes, bytes]: ...
    @property
    def fields(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def body(self) -> bytes: ...


class Gate:
    """Lets through what is signed with `keys` within 15 minutes of now."""

    def __init__(self, keys: Keys, *, clock: Clock | None = None) -> None:
        self._keys = keys
        self._clock = clock or RealClock()

    def check(self, request: SignedRequest, service: str) -> None:
        """Raise the error that AWS answers with for a request that it does not let through."""
        claim = self._claim(request.headers)
        if claim.access_key_id != self._keys.access_key_id or (
            _text(request.headers, b"x-amz-security-token") != (self._keys.session_token or "")
        ):
            raise _unknown_key()
        if claim.service != service:
            raise fault(
                "SignatureDoesNotMatch",
                f"Credential should be scoped to correct service: '{service}'.",
            )
        self._check_date(_text(request.headers, b"x-amz-date"))
        if not matches(
            claim,
            self._keys.secret_access_key,
            request.method,
            request.raw_path,
            request.query.decode("latin-1"),
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.fields],
            request.body,
        ):
            raise fault(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method. "
                "Consult the service documentation for details.",
            )

    def _claim(self, headers: dict[bytes, bytes]) -> Authorization:
        value = _text(headers, b"authorization")
        if not value:
            raise fault("MissingAuthenticationToken", "Request is missing Authentication Token")
        if (claim := parse_authorization(value)) is None:
            missing = " ".join(
                f"Authorization header requires '{part}' parameter."
                for part in ("Credential", "SignedHeaders", "Signature")
                if f"{part}=" not in value
            )
            raise fault(
                "IncompleteSignature", missing or f"Authorization header is no {ALGORITHM} one."
            )
        return claim

    def _check_date(self, date: str) -> None:
        try:
            signed_at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise fault(
                "IncompleteSignature", "Date must be in ISO-8601 'basic format' in X-Amz-Date."
            ) from None
        now = self._clock.now()
        ahead = signed_at.timestamp() - now
        if abs(ahead) <= MAX_SKEW_SECONDS:
            return
        if ahead < 0:
            limit = f"{amz_date(now - MAX_SKEW_SECONDS)} ({amz_date(now)} - 15 min.)"
            words = f"Signature expired: {date} is now earlier than {limit}"
        else:
            limit = f"{amz_date(now + MAX_SKEW_SECONDS)} ({amz_date(now)} + 15 min.)"
            words = f"Signature not yet current: {date} is still later than {limit}"
        raise fault("SignatureDoesNotMatch", words)


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


def _unknown_key() -> ServiceError:
    """The protocols disagree on the name of this one."""
    error = fault(
        "UnrecognizedClientException", "The security token included in the request is invalid."
    )
    error.query_code = "InvalidClientTokenId"
    return error
