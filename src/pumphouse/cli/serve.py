"""`pumphouse serve`: makes the queues, tells where they are, and serves until it is stopped.

How requests are served is in `pumphouse.server`; this is the command's own part: its options, the
banner, and what it warns of.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pumphouse import __version__
from pumphouse.account import Account
from pumphouse.errors import ConfigError, ServiceError, UsageError
from pumphouse.protocol.names import QueueName, is_loopback, is_queue_name, region_of_host
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sigv4 import Keys
from pumphouse.server.auth import Gate
from pumphouse.server.http_delivery import deliver
from pumphouse.server.wire import Endpoint

_SHORTHAND = re.compile(r"(?P<name>[^=]+)(?:=(?P<target>[^:]+):(?P<count>\d{1,4}))?")


@dataclass(frozen=True)
class Options:
    """What the command line and the environment say."""

    host: str = "127.0.0.1"
    port: int = 9324
    queues: Sequence[str] = ()
    region: str = "us-east-1"
    account_id: str = "000000000000"
    require_auth: bool = False
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


def run(options: Options) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit code is 0 then."""
    try:
        from pumphouse.server import runner
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "uvicorn":
            raise
        raise ConfigError("serving needs uvicorn: pip install 'pumphouse[server]'") from None

    gate = _gate(options)
    account = Account(
        region=_region(options), account_id=_account_id(options), ledger_room=0, deliver=deliver
    )
    names = asyncio.run(_create(account, options))
    socket = runner.bind(options.host, options.port)
    runner.allow_many_connections()
    url = _url(options, socket.getsockname()[1])
    account.topics.base_url = url
    banner = "\n".join(_banner(options, url, names))

    def tell() -> None:
        _warn(options)
        print(banner, flush=True)

    endpoint = Endpoint(account, gate=gate)
    runner.Server(endpoint, on_start=tell, on_stop=account.aclose).run([socket])
    print("pumphouse: stopped", flush=True)
    return 0


# --- options ------------------------------------------------------------------------------------


def _gate(options: Options) -> Gate | None:
    if not options.require_auth:
        return None
    if not options.access_key_id or not options.secret_access_key:
        raise UsageError(
            "--require-auth needs a key pair: set PUMPHOUSE_ACCESS_KEY_ID and "
            "PUMPHOUSE_SECRET_ACCESS_KEY, or give --access-key-id and --secret-access-key"
        )
    return Gate(
        Keys(options.access_key_id, options.secret_access_key, options.session_token or None)
    )


def _region(options: Options) -> str:
    if region_of_host(options.region) != options.region:
        raise UsageError(f"{options.region!r} is no region; one looks like us-east-1")
    return options.region


def _account_id(options: Options) -> str:
    if not re.fullmatch(r"\d{12}", options.account_id, re.ASCII):
        raise UsageError(f"{options.account_id!r} is no account id; one has 12 digits")
    return options.account_id


async def _create(account: Account, options: Options) -> list[str]:
    """Make the queues of `--queue`, dead-letter queues before their sources; their names."""
    redrives: dict[str, tuple[str, int]] = {}
    names: dict[str, None] = {}
    for text in options.queues:
        found = _SHORTHAND.fullmatch(text)
        parts = [part for part in found.group("name", "target") if part] if found else [text]
        for name in reversed(parts):
            if not is_queue_name(name):
                raise UsageError(
                    f"--queue {text!r}: {name!r} is no queue name; give NAME, NAME.fifo, or "
                    "NAME=DEADLETTERS:3 for a queue with a dead-letter queue"
                )
            names.setdefault(name)
        if found and found["target"]:
            redrives[parts[0]] = (parts[1], int(found["count"]))
    for name in sorted(names, key=lambda name: name in redrives):
        await _create_one(account, options, name, redrives.get(name))
    return list(names)


async def _create_one(
    account: Account, options: Options, name: str, redrive: tuple[str, int] | None
) -> None:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    if redrive is not None:
        target, count = redrive
        arn = QueueName(target, options.account_id, options.region).arn()
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": count}
        attributes["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    try:
        await account.execute(CreateQueue(name, attributes or None))
    except ServiceError as error:
        raise UsageError(f"--queue {name}: {error.message}") from None


# --- what is told -------------------------------------------------------------------------------


def _warn(options: Options) -> None:
    if is_loopback(options.host):
        return
    who = "who has the keys" if options.require_auth else "who reaches this port"
    print(
        f"pumphouse: warning: {options.host} is reached from other machines, and everyone {who} "
        "can read and write these queues; --host 127.0.0.1 keeps them to this one",
        file=sys.stderr,
        flush=True,
    )


def _url(options: Options, port: int) -> str:
    """Where clients on this machine reach the endpoint."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(options.host, options.host)  # noqa: S104
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port}"


def _banner(options: Options, url: str, names: Sequence[str]) -> list[str]:
    lines = [
        f"pumphouse {__version__} serves SQS and SNS at {url} "
        f"(region {options.region}, account {options.account_id})",
        "",
        f"  export AWS_ENDPOINT_URL_SQS={url} AWS_ENDPOINT_URL_SNS={url}",
    ]
    if not options.require_auth:
        region = options.region  # boto3 reads the second name only, other SDKs the first
        lines += [
            f"  export AWS_REGION={region} AWS_DEFAULT_REGION={region}",
            "  export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any",
        ]
    lines += ["", *(f"  {url}/{options.account_id}/{name}" for name in names)]
    lines.append("Requests have to be signed." if options.require_auth else "Any keys are taken.")
    lines.append("Ctrl-C stops it, and what is in the queues is gone then.")
    return lines
