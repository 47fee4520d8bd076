"""From what a user calls a queue to its URL."""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.addressing import QueueUrls, check_queue
from pumphouse.errors import QueueDoesNotExist, UsageError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    DONE,
    CreateQueue,
    DeleteQueue,
    GetQueueUrl,
    GetQueueUrlResult,
    PurgeQueue,
)


@pytest.mark.parametrize(
    ("queue", "checked"),
    [
        ("orders", "orders"),
        ("tenant/source.v2", "tenant-source-v2"),
        ("a b.fifo", "a-b.fifo"),
        ("https://sqs.eu-west-1.amazonaws.com/1/q", "https://sqs.eu-west-1.amazonaws.com/1/q"),
        ("arn:aws:sqs:eu-west-1:123456789012:q", "arn:aws:sqs:eu-west-1:123456789012:q"),
    ],
)
def test_references(queue: str, checked: str) -> None:
    assert check_queue(queue) == checked


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ("", "needs a name"),
        ("  ", "needs a name"),
        (None, "needs a name"),
        ("x" * 81, "longer than the 80"),
        (".fifo", r"'\.fifo' is empty before \.fifo"),
        ("x" * 76 + ".fifo", "longer than the 80"),
        ("arn:aws:sns:eu-west-1:123456789012:topic", "not the ARN"),
    ],
)
def test_what_is_no_reference(queue: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_queue(queue)


@pytest.mark.parametrize("user", ["key:hush", "hush"])
def test_a_url_holds_no_credentials_and_they_are_not_repeated(user: str) -> None:
    with pytest.raises(UsageError, match="holds a user") as caught:
        check_queue(f"https://{user}@sqs.us-east-1.amazonaws.com/123456789012/orders")
    assert "hush" not in str(caught.value)


async def test_a_name_is_looked_up_once(account: Account) -> None:
    url = (await account.execute(CreateQueue("orders"))).queue_url
    urls = QueueUrls(account)
    assert await urls.resolve("orders") == url
    assert await urls.resolve("orders") == url
    assert await urls.resolve(url) == url
    lookups = [e for e in account.ledger if isinstance(e.operation, GetQueueUrl)]
    assert len(lookups) == 1


async def test_an_arn_names_the_owner(account: Account) -> None:
    other = account.within(account_id="123456789012")
    url = (await other.execute(CreateQueue("orders"))).queue_url
    resolved = await QueueUrls(account).resolve("arn:aws:sqs:us-east-1:123456789012:orders")
    assert resolved == url


async def test_forgotten_names_are_looked_up_again(account: Account) -> None:
    account.sixty_second_rules = False
    url = (await account.execute(CreateQueue("orders"))).queue_url
    urls = QueueUrls(account)
    await urls.resolve("orders")
    await account.execute(DeleteQueue(url))
    assert await urls.resolve("orders") == url
    urls.forget("orders")
    urls.forget("never-seen")
    with pytest.raises(QueueDoesNotExist):
        await urls.resolve("orders")


async def test_a_queue_that_has_another_url_now_is_found_again() -> None:
    class Moved:
        """A backend whose queue has moved to another account."""

        def __init__(self) -> None:
            self.account_id = "111111111111"
            self.lookups = 0

        @property
        def url(self) -> str:
            return f"https://sqs.us-east-1.amazonaws.com/{self.account_id}/orders"

        async def execute(self, operation):
            if isinstance(operation, GetQueueUrl):
                self.lookups += 1
                return GetQueueUrlResult(self.url)
            if operation.queue_url != self.url:
                raise fault("QueueDoesNotExist")
            return DONE

        async def aclose(self) -> None:
            pass

    backend = Moved()
    urls = QueueUrls(backend)
    assert await urls.execute("orders", PurgeQueue) == DONE
    assert await urls.execute("orders", PurgeQueue) == DONE
    assert backend.lookups == 1
    backend.account_id = "222222222222"
    assert await urls.execute("orders", PurgeQueue) == DONE
    assert backend.lookups == 2
    with pytest.raises(QueueDoesNotExist):  # a URL is taken at its word
        await urls.execute(backend.url.replace("orders", "gone"), PurgeQueue)
    assert backend.lookups == 2
