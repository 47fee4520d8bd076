"""The bytes of a signed request, with everything that repeats computed once."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from pumphouse.http.endpoint import Endpoint
from pumphouse.protocol.sigv4 import Keys, Signer, Template, template


class _Form(NamedTuple):
    """What all requests to one target have in common."""

    head: bytes
    canonical: Template


class RequestWriter:
    """Writes requests to one endpoint, signed with one key pair."""

    __slots__ = ("_endpoint", "_forms", "_signer", "_user_agent", "keys")

    def __init__(self, endpoint: Endpoint, keys: Keys, user_agent: str) -> None:
        self.keys = keys
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._signer = Signer(keys, endpoint.region, endpoint.service)
        self._forms: dict[tuple[str, str], _Form] = {}

    def write(self, content_type: str, target: str, body: bytes, date: str) -> bytes:
        """A whole request. `target` is the value of `X-Amz-Target`, or "" for none."""
        if (form := self._forms.get((content_type, target))) is None:
            form = self._forms[content_type, target] = self._form(content_type, target)
        head, canonical = form
        authorization = self._signer.authorization(canonical, date, sha256(body).hexdigest())
        return b"%b%b\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            head,
            date.encode(),
            authorization.encode(),
            len(body),
            body,
        )

    def _form(self, content_type: str, target: str) -> _Form:
        headers = [("Host", self._endpoint.host_header), ("Content-Type", content_type)]
        if target:
            headers.append(("X-Amz-Target", target))
        if self.keys.session_token:
            headers.append(("X-Amz-Security-Token", self.keys.session_token))
        path = self._endpoint.path
        lines = [f"POST {path} HTTP/1.1", f"User-Agent: {self._user_agent}"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "X-Amz-Date: "]).encode("latin-1")
        return _Form(head, template("POST", path, "", headers))
