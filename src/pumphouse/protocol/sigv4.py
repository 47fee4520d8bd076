"""AWS Signature Version 4: signing a request, and reading a signature to check one.

Pure functions of their arguments; the time is one of them. What stays the same from request to
request is computed once: a `Template` is a canonical request with a gap for the date and the
payload, a `Signer` keeps the signing key of the day, and a `Moment` is both at one second. Byte for
byte what botocore's `SigV4Auth` computes ("Create a signed AWS API request" in the IAM user guide).
Presigned URLs and chunked uploads are not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from hashlib import _Hash

ALGORITHM = "AWS4-HMAC-SHA256"

UNSIGNED_HEADERS = frozenset(
    {
        "baggage",
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-amzn-trace-id",
    }
)
"""Headers that a proxy may change, in lower case; all others are signed."""

_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_GAP = "\0"
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<key>[^/,\s]+)/(?P<day>\d{{8}})/(?P<region>[^/,\s]+)"
    r"/(?P<service>[^/,\s]+)/aws4_request\s*,\s*SignedHeaders=(?P<headers>[^,\s]+)\s*,"
    r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """An access key, with the session token that temporary ones have; its repr tells no secret.

    `expires_at` is in seconds since the epoch, None for keys that don't expire.
    """

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Keys({self.access_key_id[:4]}…, temporary={self.session_token is not None})"


def amz_date(epoch_seconds: float) -> str:
    """`20260101T000000Z`, the form of `X-Amz-Date`."""
    return datetime.fromtimestamp(int(epoch_seconds), UTC).strftime("%Y%m%dT%H%M%SZ")


def payload_hash(body: bytes) -> str:
    """The hexadecimal SHA-256 of a body."""
    return sha256(body).hexdigest()


# --- the canonical request ----------------------------------------------------------------------


class Template(NamedTuple):
    """A canonical request up to and after `X-Amz-Date`; the payload's hash is its last line."""

    before: bytes
    after: bytes
    signed_headers: str


def template(
    method: str, path: str, query: str, headers: Iterable[tuple[str, str]], *, as_is: bool = False
) -> Template:
    """The canonical form of a request that carries these headers and `X-Amz-Date`.

    `path` and `query` as they stand in the URL. `headers` holds `Host`, and the session token
    where there is one; those of `UNSIGNED_HEADERS` are passed over, and the date need not be there.
    """
    values: dict[str, list[str]] = {}
    for name, value in headers:
        name = name.lower().strip()
        if name not in UNSIGNED_HEADERS:
            values.setdefault(name, []).append(" ".join(value.split()))
    values["x-amz-date"] = [_GAP]
    names = sorted(values)
    signed = ";".join(names)
    text = "\n".join(
        (
            method.upper(),
            path if as_is else _canonical_path(path),
            _canonical_query(query),
            *(f"{name}:{','.join(values[name])}" for name in names),
            "",
            signed,
            "",
        )
    )
    before, _, after = text.encode().partition(_GAP.encode())
    return Template(before, after, signed)


def _canonical_path(path: str) -> str:
    """The path without dot segments and doubled slashes, encoded once more."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment and segment != ".":
            kept.append(segment)
    text = "/".join(kept)
    lead = "/" if path.startswith("/") or not path else ""
    tail = "/" if path.endswith("/") and kept else ""
    return quote(lead + text + tail, safe="/~")


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&"))
    return "&".join(f"{name}={value}" for name, value in pairs)


# --- signing ------------------------------------------------------------------------------------


def signing_key(secret_access_key: str, day: str, region: str, service: str) -> bytes:
    """The key that signs everything of one day, region and service."""
    key = f"AWS4{secret_access_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac_digest(key, part.encode(), "sha256")
    return key


class Moment:
    """A template at a date, ready to sign any number of payloads: what they share is hashed."""

    __slots__ = ("_canonical", "_inner", "_outer", "date", "head")

    def __init__(self, signer: Signer, of: Template, date: str) -> None:
        scope = f"{date[:8]}/{signer.region}/{signer.service}/aws4_request"
        key = signer.keys.access_key_id
        self.date = date
        self.head = (
            f"{ALGORITHM} Credential={key}/{scope}, SignedHeaders={of.signed_headers}, Signature="
        )
        """The value of `Authorization` up to the signature."""
        self._canonical = sha256(b"%b%b%b" % (of.before, date.encode(), of.after))
        inner, self._outer = signer.halves(date[:8])
        self._inner = inner.copy()
        self._inner.update(f"{ALGORITHM}\n{date}\n{scope}\n".encode())

    def signature(self, body_hash: str) -> str:
        """The signature over a payload with this hash."""
        canonical = self._canonical.copy()
        canonical.update(body_hash.encode())
        inner = self._inner.copy()
        inner.update(canonical.hexdigest().encode())
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()


class Signer:
    """Signs for one key pair, region and service; keeps the key of the day.

    HMAC's two hashes (RFC 2104) are keyed once a day and copied for each signature, which costs a
    quarter of a new HMAC.
    """

    __slots__ = ("_of_day", "keys", "region", "service")

    def __init__(self, keys: Keys, region: str, service: str) -> None:
        self.keys = keys
        self.region = region
        self.service = service
        self._of_day = ("", (sha256(), sha256()))  # one value, so that threads see a whole one

    def halves(self, day: str) -> tuple[_Hash, _Hash]:
        """HMAC's inner and outer hash under the key of a day."""
        known, halves = self._of_day
        if day != known:
            key = signing_key(self.keys.secret_access_key, day, self.region, self.service)
            block = key.ljust(64, b"\0")
            halves = (sha256(block.translate(_INNER)), sha256(block.translate(_OUTER)))
            self._of_day = (day, halves)
        return halves

    def at(self, of: Template, date: str) -> Moment:
        """What signs requests of a form at a date (`X-Amz-Date`)."""
        return Moment(self, of, date)

    def authorization(self, of: Template, date: str, body_hash: str) -> str:
        """The value of the header `Authorization`."""
        moment = self.at(of, date)
        return moment.head + moment.signature(body_hash)

    def __repr__(self) -> str:
        return f"Signer({self.keys!r}, {self.region}, {self.service})"


def sign(
    keys: Keys,
    region: str,
    service: str,
    date: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> dict[str, str]:
    """The headers to add to any one request: date, session token, authorization.

    A header `X-Amz-Content-SHA256` among `headers` stands for the hash of the body.
    """
    parts = urlsplit(url)
    added = {"X-Amz-Date": date}
    if keys.session_token:
        added["X-Amz-Security-Token"] = keys.session_token
    lowered = {name.lower(): value for name, value in headers.items()}
    replaced = {name.lower() for name in added} | {"authorization"}
    carried = [(name, value) for name, value in lowered.items() if name not in replaced]
    if "host" not in lowered:
        carried.append(("host", host_header(url)))
    carried.extend(added.items())
    form = template(method, parts.path, parts.query, carried, as_is=service == "s3")
    body_hash = lowered.get("x-amz-content-sha256") or payload_hash(body)
    added["Authorization"] = Signer(keys, region, service).authorization(form, date, body_hash)
    return added


def host_header(url: str) -> str:
    """The header `Host` for a URL: no user, and no port where it is the scheme's own."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, default) else f"{host}:{parts.port}"


# --- checking -----------------------------------------------------------------------------------


class Authorization(NamedTuple):
    """What a header `Authorization` says."""

    access_key_id: str
    day: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


def parse_authorization(value: str) -> Authorization | None:
    """A header `Authorization` of this version of signatures, or None for any other text."""
    found = _AUTHORIZATION.fullmatch(value.strip())
    if found is None:
        return None
    return Authorization(
        found["key"],
        found["day"],
        found["region"],
        found["service"],
        tuple(found["headers"].split(";")),
        found["signature"],
    )


def matches(
    claim: Authorization,
    secret_access_key: str,
    method: str,
    path: str,
    query: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
) -> bool:
    """Whether a request was signed with this secret: its host, its one date, and all `X-Amz-…`.

    Says nothing of the date's distance from now, or the scope.
    """
    carried = [(name.lower(), value) for name, value in headers]
    dates = [value.strip() for name, value in carried if name == "x-amz-date"]
    if len(dates) != 1 or dates[0][:8] != claim.day:
        return False
    [date] = dates
    must = {"host"} | {name for name, _ in carried if name.startswith("x-amz-")}
    if must - set(claim.signed_headers):
        return False
    signed = [
        (name, value)
        for name, value in carried
        if name in claim.signed_headers and name != "x-amz-date"
    ]
    form = template(method, path, query, signed)
    if form.signed_headers != ";".join(sorted(claim.signed_headers)):
        return False
    given = next((value for name, value in carried if name == "x-amz-content-sha256"), "")
    if given and given != payload_hash(body):
        return False
    signer = Signer(Keys(claim.access_key_id, secret_access_key), claim.region, claim.service)
    return compare_digest(signer.at(form, date).signature(payload_hash(body)), claim.signature)
