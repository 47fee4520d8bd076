"""Where credentials come from, and what happens when they can't be had."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path

import pytest

from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    ConfigError,
    NetworkError,
    NoCredentialsError,
    TransientError,
    UsageError,
)
from pumphouse.hooks import Hooks
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.credentials import BotocoreChain, Keeper
from pumphouse.http.endpoint import Configuration
from pumphouse.http.events import CredentialsLoaded
from pumphouse.protocol.operations import DeleteMessage, SendMessage
from support.aws_settings import aws_files  # noqa: F401
from support.fault_server import FaultServer, Request
from support.providers import ROLES, SECRETS, providing

pytestmark = pytest.mark.usefixtures("aws_files")


def chain(profile: str | None = None) -> BotocoreChain:
    return BotocoreChain(Configuration(region="eu-west-1", endpoint_url=None, profile=profile))


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert chain()() == Keys("AKIDENV", "s", "t", None)


def test_profile(aws_files: Path) -> None:  # noqa: F811
    (aws_files / "credentials").write_text(
        "[default]\naws_access_key_id=A\naws_secret_access_key=B\n"
        "[other]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n"
    )
    assert chain()() == Keys("A", "B")
    assert chain("other")() == Keys("C", "D", "E")


def test_a_credential_process_with_an_expiry(aws_files: Path, tmp_path: Path) -> None:  # noqa: F811
    document = {
        "Version": 1,
        "AccessKeyId": "P",
        "SecretAccessKey": "Q",
        "SessionToken": "R",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    (tmp_path / "document").write_text(json.dumps(document))
    (aws_files / "config").write_text(
        f"[default]\ncredential_process = cat {tmp_path / 'document'}\n"
    )
    assert chain()() == Keys("P", "Q", "R", 4_070_908_800.0)


async def test_what_a_credential_process_prints_is_not_repeated(aws_files: Path) -> None:  # noqa: F811
    (aws_files / "config").write_text(
        "[default]\ncredential_process = sh -c 'echo hidden-secret >&2; exit 3'\n"
    )
    keeper = Keeper(chain(), VirtualClock(), Hooks())
    with pytest.raises(ConfigError, match="CredentialRetrievalError") as caught:
        await keeper.get()
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(keeper)


WEB_IDENTITY = {
    "AWS_WEB_IDENTITY_TOKEN_FILE": "{folder}/token",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
    "AWS_ENDPOINT_URL_STS": "{url}",
    "AWS_REGION": "us-east-1",
}
ROLE = {"AWS_PROFILE": "role", "AWS_ENDPOINT_URL_STS": "{url}"}
CONTAINER = {
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/container",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN": SECRETS[2],
}
INSTANCE = {
    "AWS_EC2_METADATA_DISABLED": "false",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "{url}/",
}


def provide(
    monkeypatch: pytest.MonkeyPatch, folder: Path, variables: dict[str, str], url: str
) -> None:
    """Point the environment, and the profile `role`, at the services of `support.providers`."""
    (folder / "token").write_text(SECRETS[2])
    (folder / "config").write_text(
        "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = source\n"
        f"region = us-east-1\n[profile source]\naws_access_key_id = AKIDSOURCE\n"
        f"aws_secret_access_key = {SECRETS[0]}\n"
    )
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=url, folder=folder))


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        (WEB_IDENTITY, ["POST /"]),
        (ROLE, ["POST /"]),
        (CONTAINER, ["GET /container"]),
        (INSTANCE, ["PUT /latest/api/token", f"GET {ROLES}", f"GET {ROLES}role"]),
    ],
    ids=["web identity", "role", "container", "instance"],
)
async def test_each_provider_is_asked_once_and_its_secrets_are_shown_nowhere(
    variables: dict[str, str],
    asked: list[str],
    aws_files: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[object] = []
    with providing() as providers:
        provide(monkeypatch, aws_files, variables, providers.url)
        async with (
            FaultServer() as server,
            HttpBackend(region="eu-west-1", endpoint_url=server.url) as backend,
        ):
            backend.hooks.on(CredentialsLoaded, events.append)
            await asyncio.gather(
                *(backend.execute(SendMessage(server.queue, f"{n}")) for n in range(20))
            )
            shown = repr(backend) + str(vars(backend)) + repr(vars(backend._keeper)) + repr(events)
        assert providers.asked == asked
        [key] = {r.headers["authorization"].split("=")[1][:5] for r in server.ledger.requests}
        assert key == f"AKID{len(asked)}"
        assert {r.headers["x-amz-security-token"] for r in server.ledger.requests} == {SECRETS[1]}
    assert len(events) == 1
    for secret in SECRETS:
        assert secret not in shown
        assert secret not in caplog.text


async def test_a_provider_that_was_out_of_order_is_asked_again(
    aws_files: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = VirtualClock()
    with providing() as providers:
        provide(monkeypatch, aws_files, INSTANCE, providers.url)
        providers.failures = 1_000
        keeper = Keeper(chain(), clock, Hooks())
        for _ in range(3):
            with pytest.raises(ConfigError):
                await keeper.get()
            await clock.advance(31)
        assert not keeper.healthy
        providers.failures = 0
        assert (await keeper.get()).session_token == SECRETS[1]
        assert keeper.healthy


async def test_what_botocore_logs_for_others_is_theirs(caplog: pytest.LogCaptureFixture) -> None:
    BotocoreChain(Configuration(region="eu-west-1", endpoint_url=None, profile=None))
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore.parsers").debug("someone else's answer")
    assert "someone else's answer" in caplog.text


async def test_none_anywhere() -> None:
    async with HttpBackend(region="eu-west-1", endpoint_url="http://127.0.0.1:9") as backend:
        with pytest.raises(NoCredentialsError, match="no AWS credentials") as raised:
            await backend.execute(SendMessage("q", "m"))
        said = str(raised.value)
        assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
        assert said.endswith("AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any")
        assert not backend.credentials_healthy
        assert repr(backend).endswith("credentials failing>")
    async with HttpBackend(region="eu-west-1") as backend:
        with pytest.raises(NoCredentialsError) as raised:
            await backend.execute(SendMessage("q", "m"))
        assert "=any" not in str(raised.value)


async def test_a_source_is_asked_once_for_many_callers_and_loops() -> None:
    calls: list[int] = []
    gate = threading.Event()

    def source() -> Keys:
        calls.append(threading.get_ident())
        gate.wait(10)
        return Keys("A", "B")

    keeper = Keeper(source, VirtualClock(), Hooks())

    def elsewhere() -> Keys:
        return asyncio.run(keeper.get())

    waiting = [asyncio.create_task(keeper.get()) for _ in range(20)]
    others = [asyncio.create_task(asyncio.to_thread(elsewhere)) for _ in range(3)]
    while keeper._running is None:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    gate.set()
    assert {keys.access_key_id for keys in await asyncio.gather(*waiting, *others)} == {"A"}
    assert len(calls) == 1
    assert calls[0] != threading.get_ident()


async def test_an_empty_key_is_no_key() -> None:
    keeper = Keeper(lambda: Keys("A", ""), VirtualClock(), Hooks())
    with pytest.raises(NoCredentialsError, match="is empty"):
        await keeper.get()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "returned NoneType; it has to be a plain function"),
        ({"access_key_id": "hidden"}, "returned dict"),
        (Keys("AKID", "hidden\n"), "secret_access_key holds what no key has"),
        (Keys("AKID", "s", "hidden\r\nX-Evil: 1"), "session_token holds what no key has"),
        (Keys("AKID hidden", "s"), "access_key_id holds what no key has"),
        (Keys("AKID", "s", "hiddén"), "session_token holds what no key has"),
        (Keys("AKID", "s", "t", 1.0), "have expired already; is the clock"),
    ],
)
async def test_what_a_source_returns_has_to_be_keys_that_can_sign(given: Keys, words: str) -> None:
    asked = []
    keeper = Keeper(lambda: asked.append(1) or given, VirtualClock(), Hooks())
    for _ in range(20):
        with pytest.raises(ConfigError, match=words) as caught:
            await keeper.get()
        assert "hidden" not in str(caught.value)
    assert len(asked) == 1  # and not once for each call
    if isinstance(given, Keys) and given.expires_at is None:
        with pytest.raises(UsageError, match=words):
            HttpBackend(credentials=given)


async def test_a_source_that_wants_to_end_everything_ends_nothing() -> None:
    def give_up() -> Keys:
        raise SystemExit(3)

    with pytest.raises(ConfigError, match="SystemExit"):
        await Keeper(give_up, VirtualClock(), Hooks()).get()


async def test_a_thread_that_can_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    keeper = Keeper(lambda: Keys("AKID", "s"), VirtualClock(), Hooks())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(ConfigError, match="no thread"):
            await keeper.get()
    assert (await keeper.get()).access_key_id == "AKID"


async def test_keys_that_many_calls_find_expired_are_fetched_anew_once() -> None:
    class Refused:
        """A source that counts; a forgotten source looks everywhere anew."""

        asked = forgotten = 0

        def __call__(self) -> Keys:
            self.asked += 1
            return Keys(f"AKID{self.asked}", "secret")

        def forget(self) -> None:
            self.forgotten += 1

    source = Refused()

    def script(request: Request) -> str:
        return "expired_token" if "AKID1/" in request.headers["authorization"] else "ok"

    async with (
        FaultServer(script) as server,
        HttpBackend(
            region="eu-west-1",
            endpoint_url=server.url,
            credentials=source,
            retry=RetryPolicy(base_seconds=0.0, cap_seconds=0.0),
            max_connections=30,
        ) as backend,
    ):
        await asyncio.gather(
            *(backend.execute(SendMessage(server.queue, f"{n}")) for n in range(30))
        )
    assert (source.asked, source.forgotten) == (2, 1)


async def test_a_cancelled_caller_does_not_stop_the_renewal() -> None:
    gate = threading.Event()

    def source() -> Keys:
        gate.wait(10)
        return Keys("A", "B")

    keeper = Keeper(source, VirtualClock(), Hooks())
    first, second = (asyncio.create_task(keeper.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert (await second).access_key_id == "A"
    assert first.cancelled()


async def test_credentials_do_not_outlast_the_calls_own_time() -> None:
    gate = threading.Event()

    def source() -> Keys:
        gate.wait(10)
        return Keys("A", "B")

    async with HttpBackend(
        region="eu-west-1",
        endpoint_url="http://127.0.0.1:9",
        credentials=source,
        read_timeout_seconds=0.03,
        total_timeout_seconds=0.03,
    ) as backend:
        with pytest.raises(NetworkError, match="the credentials did not come in time"):
            await backend.execute(SendMessage("q", "m"))
        gate.set()
        while not backend._keeper._keys:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_keys_that_aws_calls_expired_are_fetched_anew() -> None:
    given = iter(["OLD", "NEW"])
    plays = iter(["expired_token", "ok"])
    async with FaultServer(lambda request: next(plays)) as server:
        async with HttpBackend(
            region="eu-west-1",
            endpoint_url=server.url,
            credentials=lambda: Keys(next(given), "secret"),
            retry=RetryPolicy(base_seconds=0.0, cap_seconds=0.0),
        ) as backend:
            await backend.execute(SendMessage(server.queue, "m"))
        used = [r.headers["authorization"].split("=")[1][:3] for r in server.ledger.requests]
        assert used == ["OLD", "NEW"]


async def test_static_keys_that_have_expired_end_after_the_budget() -> None:
    async with FaultServer(lambda request: "expired_token") as server:
        async with HttpBackend(
            region="eu-west-1",
            endpoint_url=server.url,
            credentials=Keys("A", "B", "C"),
            retry=RetryPolicy(base_seconds=0.0, cap_seconds=0.0, max_attempts=3),
        ) as backend:
            with pytest.raises(TransientError, match="ExpiredToken"):
                await backend.execute(DeleteMessage(server.queue, "h"))
        assert len(server.ledger.requests) == 3
