"""The account's signature under notifications, so that verification can be tried out.

The key is made when the first signature is wanted, with `cryptography` (the extra
`pumphouse[sns]`), once for all accounts of a process, as that takes a while. What is signed, and
with which digest, is AWS's ("Verifying the signatures of Amazon SNS messages" in the developer
guide): version 1 is SHA-1, version 2 SHA-256, both with RSA and PKCS #1 v1.5.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from pumphouse.clock import Clock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

UNSIGNED = base64.b64encode(b"not signed: this needs the extra pumphouse[sns]").decode()
"""What stands for a signature where `cryptography` is not installed; it verifies nothing."""

KEY_BITS = 2048

_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": (
        "Message",
        "MessageId",
        "SubscribeURL",
        "Timestamp",
        "Token",
        "TopicArn",
        "Type",
    ),
}
_SIGNED["UnsubscribeConfirmation"] = _SIGNED["SubscriptionConfirmation"]


def string_to_sign(fields: Mapping[str, Any]) -> bytes:
    """What of a notification is signed: names and values, a line each."""
    return "".join(
        f"{name}\n{fields[name]}\n" for name in _SIGNED[fields["Type"]] if name in fields
    ).encode(errors="surrogatepass")


@cache
def _key() -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)


class Signer:
    """Signs with the key, under a certificate of its own, which is made when it is first needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key: RSAPrivateKey | None = None
        self._certificate = b""
        self._missing = False
        self.file_name = f"SimpleNotificationService-{secrets.token_hex(16)}.pem"
        """The last part of the certificate's URL."""

    def sign(self, fields: Mapping[str, Any], version: str) -> str:
        """The signature of a notification, in base64."""
        key = self._key or self._made()
        if key is None:
            return UNSIGNED
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

        digest = hashes.SHA256() if version == "2" else hashes.SHA1()  # noqa: S303
        return base64.b64encode(key.sign(string_to_sign(fields), PKCS1v15(), digest)).decode()

    @property
    def certificate(self) -> bytes:
        """The certificate of the key, as PEM; empty where `cryptography` is not installed."""
        if self._key is None:
            self._made()
        return self._certificate

    def _made(self) -> RSAPrivateKey | None:
        """The key, with its certificate made now; None without `cryptography`."""
        if self._missing:
            return None
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
        except ImportError:
            self._missing = True
            return None
        key = _key()
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=365))
            .sign(key, hashes.SHA256())
        )
        self._certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self._key = key
        return key

    def __repr__(self) -> str:
        return f"<Signer {'with' if self._key else 'without'} a key>"
