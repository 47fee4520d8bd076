"""Credentials that can not be loaded may be there the next time; some can not ever be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore import exceptions as botocore

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, ConfigError, NoCredentialsError, PumphouseError
from pumphouse.hooks import Hooks
from pumphouse.http import HttpBackend
from pumphouse.http.credentials import Keeper
from pumphouse.protocol.sigv4 import Keys
from pumphouse.sink import Sink
from support.sending import outcomes

from .conftest import MakeSink


class Keyed:
    """An account behind credentials."""

    def __init__(self, account: Account, clock: VirtualClock, source: Callable[[], Keys]) -> None:
        self.account = account
        self.keeper = Keeper(source, clock, Hooks())

    async def execute(self, operation: Any) -> Any:
        await self.keeper.get()
        return await self.account.execute(operation)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("the vault is down"),
        botocore.CredentialRetrievalError(provider="iam-role", error_msg="no answer"),
        botocore.ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"),
        botocore.ReadTimeoutError(endpoint_url="http://127.0.0.1:1"),
        botocore.ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "AssumeRole"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_source_that_fails_twice_is_asked_again_within_the_retries(
    make: MakeSink, account: Account, clock: VirtualClock, error: Exception
) -> None:
    asked = 0

    def source() -> Keys:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise error
        return Keys("x", "y")

    sink = make(backend=Keyed(account, clock, source))
    got = await outcomes(clock, [sink.send(str(n)) for n in range(3)])
    assert [each.message_id for each in got]
    assert asked == 3
    assert sink.stats["stored"] == 3


@pytest.mark.parametrize(
    "error",
    [
        botocore.ProfileNotFound(profile="none"),
        botocore.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        botocore.ClientError({"ResponseMetadata": {"HTTPStatusCode": 403}}, "AssumeRole"),
        ConfigError("the source says so itself"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_can_not_ever_work_is_told_at_once(
    make: MakeSink, account: Account, clock: VirtualClock, error: Exception
) -> None:
    def source() -> Keys:
        raise error

    sink = make(backend=Keyed(account, clock, source))
    [got] = await outcomes(clock, [sink.send("x")])
    assert type(got) is ConfigError
    assert clock.monotonic() < 1
    assert sink.stats["retried"] == 0


async def test_a_source_that_never_works_ends_as_no_credentials(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    def source() -> Keys:
        raise OSError("hidden")

    sink = make(backend=Keyed(account, clock, source))
    [got] = await outcomes(clock, [sink.send("x")])
    assert type(got) is NoCredentialsError
    assert "OSError" in str(got)
    assert "hidden" not in str(got)
    assert sink.stats["config_errors"] == 1
    assert not account.ledger


async def test_an_error_of_a_source_that_can_not_be_copied_is_told() -> None:
    class OwnError(PumphouseError):
        def __init__(self, *, place: str) -> None:
            super().__init__(f"nothing in {place}")

    def source() -> Keys:
        raise OwnError(place="the vault")

    keeper = Keeper(source, VirtualClock(), Hooks())
    for _ in range(2):
        with pytest.raises(OwnError, match="the vault"):
            await keeper.get()


async def test_closing_while_credentials_load_has_sent_nothing() -> None:
    loading, over = threading.Event(), threading.Event()

    def source() -> Keys:
        loading.set()
        over.wait(10)
        return Keys("x", "y")

    url = "http://127.0.0.1:9/000000000000/orders"
    backend = HttpBackend(region="us-east-1", endpoint_url="http://127.0.0.1:9", credentials=source)
    sink = Sink(url, backend, batch_linger=0, max_message_bytes=1000)
    sending = asyncio.create_task(sink.send("x"))
    try:
        await asyncio.to_thread(loading.wait, 10)
        await sink.aclose(0)
    finally:
        over.set()
    assert isinstance(sending.exception(), ClosedError)
    await backend.aclose()
