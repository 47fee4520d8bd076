"""The services that hand out credentials, on loopback: STS, a container's, an instance's (IMDSv2).

Each answer has an access key id of its own, and the secrets of `SECRETS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

SECRETS = ("the-provided-secret-key", "the-provided-session-token", "the-token-for-the-provider")
ROLES = "/latest/meta-data/iam/security-credentials/"


class Providers:
    """`asked` is what was asked for; the next `failures` answers are 500."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failures = 0
        self.url = ""

    def answer(self, asked: str, headers: Any, body: str) -> tuple[int, str]:
        self.asked.append(asked)
        if self.failures:
            self.failures -= 1
            return 500, "out of order"
        document = {
            "Code": "Success",
            "AccessKeyId": f"AKID{len(self.asked)}",
            "SecretAccessKey": SECRETS[0],
            "Token": SECRETS[1],
            "Expiration": "2099-01-01T00:00:00Z",
        }
        if asked == "PUT /latest/api/token":
            return 200, SECRETS[2]
        if asked.startswith(f"GET {ROLES}"):
            if headers["x-aws-ec2-metadata-token"] != SECRETS[2]:
                return 401, ""
            return 200, "role" if asked.endswith("/") else json.dumps(document)
        if asked == "GET /container":
            granted = headers["authorization"] == SECRETS[2]
            return (200, json.dumps(document)) if granted else (403, "")
        form = parse_qs(body)
        action = form["Action"][0]
        if action == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] != [SECRETS[2]]:
            return 403, ""
        document["SessionToken"] = document.pop("Token")
        del document["Code"]
        keys = "".join(f"<{name}>{value}</{name}>" for name, value in document.items())
        return 200, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
            f"<Credentials>{keys}</Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:r</Arn>"
            f"<AssumedRoleId>r</AssumedRoleId></AssumedRoleUser></{action}Result></{action}Response>"
        )


@contextmanager
def providing() -> Iterator[Providers]:
    """The services at `url`, until the block ends."""
    providers = Providers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            """Says nothing."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            status, text = providers.answer(f"{self.command} {self.path}", self.headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = answer  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    providers.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield providers
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
