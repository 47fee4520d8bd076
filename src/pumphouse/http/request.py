"""The bytes of a signed request, with everything that repeats computed once."""

from __future__ import annotations

from hashlib import sha256

from pumphouse.http.endpoint import Endpoint
from pumphouse.protocol.sigv4 import Keys, Moment, Signer, Template, template


class _Form:
    """What all requests to one target have in common.

    `now` is what those of one second have in common: the second's date, the bytes up to the
    signature, and what signs. It is one value, so that threads never mix two seconds.
    """

    __slots__ = ("canonical", "head", "now")

    def __init__(self, head: str, canonical: Template) -> None:
        self.head = head
        self.canonical = canonical
        self.now: tuple[str, bytes, Moment] | None = None


class RequestWriter:
    """Writes requests to one endpoint, signed with one key pair."""

    __slots__ = ("_endpoint", "_forms", "_signer", "_user_agent", "keys")

    def __init__(self, endpoint: Endpoint, keys: Keys, user_agent: str) -> None:
        self.keys = keys
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._signer = Signer(keys, endpoint.region, endpoint.service)
        self._forms: dict[str, _Form] = {}

    def write(self, content_type: str, target: str, body: bytes, date: str) -> bytes:
        """A whole request. `target` is the value of `X-Amz-Target`, or "" for none.

        One target always goes with one content type.
        """
        if (form := self._forms.get(target)) is None:
            form = self._forms[target] = self._form(content_type, target)
        now = form.now
        if now is None or now[0] != date:
            moment = self._signer.at(form.canonical, date)
            lead = f"{form.head}{date}\r\nAuthorization: {moment.head}".encode("latin-1")
            form.now = now = (date, lead, moment)
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (
            now[1],
            now[2].signature(sha256(body).hexdigest()).encode(),
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
        return _Form("\r\n".join([*lines, "X-Amz-Date: "]), template("POST", path, "", headers))
