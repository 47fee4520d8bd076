"""Whether SNS signed a document: `Verifier`, with certificates from pinned hosts only.

What is signed, and how, is AWS's ("Verifying the signatures of Amazon SNS messages" in the
developer guide): version 1 is SHA-1, version 2 SHA-256, both with RSA and PKCS #1 v1.5. The
certificate's address is part of the document, so it is taken from hosts of SNS alone, in regions of
any partition, and fetched by a function that the verifier is given. Needs `cryptography`, the extra
`pumphouse[sns]`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pumphouse.clock import Clock, RealClock
from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.notifications.document import NOTIFICATION, Notification
from pumphouse.protocol.names import is_host_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

Fetch = Callable[[str, int], Awaitable[bytes]]
"""Gets the body of a URL of at most so many bytes; raises a `PumphouseError` where it can't."""

MAX_CERTIFICATE_BYTES = 65_536
MAX_CERTIFICATES = 16
CERTIFICATE_SECONDS = 86_400.0
"""How long a certificate is remembered, if it does not expire before that."""


class SignatureError(UndecodableError):
    """A document is not signed by SNS, or it can't be told."""


class _Certificate(NamedTuple):
    key: RSAPublicKey
    not_before: float
    not_after: float
    fetched: float


class Verifier:
    """Verifies documents, and remembers up to 16 certificates for a day each.

    `fetch` gets a certificate (`pumphouse.http.fetch.fetch` does). `trusted_hosts` are hosts beside
    those of SNS, as `host` or `host:port`, that a certificate may come from, over HTTP too: an
    account's own, in a test. Raises `UsageError` where `cryptography` is not installed.
    """

    def __init__(
        self, fetch: Fetch, *, trusted_hosts: Collection[str] = (), clock: Clock | None = None
    ) -> None:
        try:
            import cryptography  # noqa: F401
        except ImportError:
            raise UsageError(
                "verifying the signatures of SNS needs cryptography: pip install 'pumphouse[sns]'"
            ) from None
        self._fetch = fetch
        self._trusted = frozenset(trusted_hosts)
        self._clock: Clock = clock or RealClock()
        self._known: OrderedDict[str, _Certificate] = OrderedDict()
        self._asked: dict[str, asyncio.Lock] = {}

    async def verify(self, document: Notification, *, max_age_seconds: float | None = None) -> None:
        """Return if SNS signed the document, not longer ago than `max_age_seconds`.

        Raises `SignatureError` if not, and what `fetch` raises where the certificate can't be had
        now.
        """
        version = document.signature_version
        if not document.signature or not document.signing_cert_url:
            raise SignatureError(
                "the document has no signature"
                + (" (a FIFO topic signs nothing)" if document.sequence_number else "")
            )
        if version not in ("1", "2"):
            raise SignatureError(f"signature version {version!r} is not known here")
        try:
            signature = base64.b64decode(document.signature, validate=True)
        except (binascii.Error, ValueError):
            raise SignatureError("the signature is no base64") from None
        url = self.check_url(document.signing_cert_url)
        certificate = await self._certificate(url)
        now = self._clock.now()
        if not certificate.not_before <= now <= certificate.not_after:
            raise SignatureError(f"the certificate {url} is not valid now")
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

        digest = hashes.SHA256() if version == "2" else hashes.SHA1()  # noqa: S303
        try:
            certificate.key.verify(signature, signed_text(document), PKCS1v15(), digest)
        except InvalidSignature:
            raise SignatureError("the signature is not that of this document") from None
        if max_age_seconds is not None:
            age = now - _signed_at(document)
            if age > max_age_seconds:
                raise SignatureError(
                    f"the document is {age:.0f} s old, and {max_age_seconds:g} s are allowed: it "
                    "was sent before, or the clock here is fast"
                )

    def check_url(self, url: str) -> str:
        """The URL of a certificate, if it may be fetched. Raises `SignatureError`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise SignatureError(f"the certificate's URL {url!r} is none") from None
        if parts.username is None and not parts.query and not parts.fragment:
            trusted = parts.netloc in self._trusted and parts.scheme in ("http", "https")
            pinned = (
                parts.scheme == "https"
                and port in (None, 443)
                and is_host_of("sns", parts.hostname or "")
            )
            if parts.path.endswith(".pem") and (trusted or pinned):
                return url
        raise SignatureError(f"the certificate's URL {url!r} is not one of SNS")

    async def _certificate(self, url: str) -> _Certificate:
        """The certificate of a URL that may be fetched: from memory, or fetched once for all."""
        async with self._asked.setdefault(url, asyncio.Lock()):
            try:
                known = self._known.get(url)
                if known is not None and self._clock.now() < min(
                    known.not_after, known.fetched + CERTIFICATE_SECONDS
                ):
                    self._known.move_to_end(url)
                    return known
                pem = await self._fetch(url, MAX_CERTIFICATE_BYTES)
                found = self._known[url] = _read(url, pem, self._clock.now())
                self._known.move_to_end(url)
                while len(self._known) > MAX_CERTIFICATES:
                    self._known.popitem(last=False)
                return found
            finally:
                if not getattr(self._asked.get(url), "_waiters", None):
                    self._asked.pop(url, None)

    def __repr__(self) -> str:
        return f"<Verifier: {len(self._known)} certificates>"


def _signed_at(document: Notification) -> float:
    try:
        return datetime.fromisoformat(document.timestamp).timestamp()
    except (ValueError, OverflowError):
        raise SignatureError(f"the time {document.timestamp!r} is none") from None


def signed_text(document: Notification) -> bytes:
    """What of a document is signed: names and values, a line each, in the order of the names."""
    if document.type == NOTIFICATION:
        named = {
            "Message": document.message,
            "MessageId": document.message_id,
            "Subject": document.subject,
            "Timestamp": document.timestamp,
            "TopicArn": document.topic_arn,
            "Type": document.type,
        }
    else:
        named = {
            "Message": document.message,
            "MessageId": document.message_id,
            "SubscribeURL": document.subscribe_url,
            "Timestamp": document.timestamp,
            "Token": document.token,
            "TopicArn": document.topic_arn,
            "Type": document.type,
        }
    return "".join(
        f"{name}\n{value}\n" for name, value in named.items() if value is not None
    ).encode(errors="surrogatepass")


def _read(url: str, pem: bytes, now: float) -> _Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
    except Exception as error:  # of many kinds: it was fetched from a host of SNS, and is unusable
        raise SignatureError(f"there is no certificate at {url}: {error}") from None
    if not isinstance(key, RSAPublicKey):
        raise SignatureError(f"the certificate at {url} has no RSA key")
    return _Certificate(
        key,
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        now,
    )
