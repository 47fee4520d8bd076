"""Pre-flight: every planted misconfiguration is found by its code, nothing in a sound service."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumphouse import (
    Account,
    App,
    NetworkError,
    Queue,
    Reply,
    RetryPolicy,
    Topic,
    UsageError,
    VirtualClock,
    subscribe_queue_to_topic,
)
from pumphouse.check import KINDS, Finding, check
from pumphouse.check.case import span
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.errors import ConfigError, NoCredentialsError, RefusedConfigError, ServiceError
from pumphouse.in_process import make_queues
from pumphouse.middleware import TimeLimit
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueAttributesResult,
    Operation,
    SetQueueAttributes,
)
from pumphouse.protocol.sns_operations import CreateTopic, GetTopicAttributes, Subscribe
from pumphouse.subscriber.setup import receive_limit
from support.declared import apps

TWO_WEEKS = str(14 * 86_400)
HERE = "https://sqs.us-east-1.amazonaws.com/000000000000"
REFUSABLE = (
    *("GetQueueUrl", "GetQueueAttributes", "ListTopics", "GetTopicAttributes"),
    *("ListSubscriptions", "GetSubscriptionAttributes"),
)


class Order(msgspec.Struct):
    id: int


class Invoice(msgspec.Struct):
    number: str


async def handle(order: dict) -> None:
    """Handles an order."""


def arn(name: str, region: str = "us-east-1", account_id: str = "000000000000") -> str:
    return f"arn:aws:sqs:{region}:{account_id}:{name}"


def redrive(name: str, receives: int = 20, **place: str) -> str:
    return json.dumps({"deadLetterTargetArn": arn(name, **place), "maxReceiveCount": receives})


async def make(account: Account, name: str, **attributes: str) -> str:
    if name.endswith(".fifo"):
        attributes["FifoQueue"] = "true"
    return (await account.execute(CreateQueue(name, attributes or None))).queue_url


async def sound(account: Account, kind: str = "", **attributes: str) -> str:
    """A queue `orders` with a dead-letter queue `spent`, both as they should be."""
    await make(account, f"spent{kind}", MessageRetentionPeriod=TWO_WEEKS)
    attributes.setdefault("RedrivePolicy", redrive(f"spent{kind}"))
    return await make(account, f"orders{kind}", **attributes)


def an_app(queue: Queue | str = "orders", **options: Any) -> App:
    app = App("shop", drain_seconds=options.pop("drain_seconds", 20.0))
    options.setdefault("max_attempts", 5)
    kind = ".fifo" if str(queue).endswith((".fifo", ".fifo')")) else ""
    options.setdefault("dead_letter", f"spent{kind}")
    if options["max_attempts"] is None:
        del options["max_attempts"], options["dead_letter"]
    app.subscriber(queue, **options)(handle)
    return app


def codes(findings: list[Finding]) -> list[str]:
    return [each.code for each in findings]


async def only(app: App, backend: Any, code: str) -> Finding:
    """The one thing that is found; it is of this code, and everything in it is said."""
    findings = await check(app, backend)
    assert codes(findings) == [code]
    [finding] = findings
    assert finding.severity == KINDS[code].severity
    assert finding.queue
    assert finding.message
    assert finding.remedy
    return finding


class Doctored:
    """An account that says of some queues what AWS would not have let anyone set."""

    def __init__(self, account: Account, **attributes: dict[str, str]) -> None:
        self.account = account
        self.attributes = attributes

    async def execute(self, operation: Operation[Any]) -> Any:
        answer = await self.account.execute(operation)
        if isinstance(operation, GetQueueAttributes):
            name = operation.queue_url.rpartition("/")[2].partition(".")[0]
            return GetQueueAttributesResult({**answer.attributes, **self.attributes.get(name, {})})
        return answer

    async def aclose(self) -> None:
        """Nothing to give back."""


# --- a sound service ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["", ".fifo"])
async def test_nothing_is_found_in_a_sound_service(account: Account, kind: str) -> None:
    await sound(account, kind)
    await make(account, "shipped.fifo")
    topic = (await account.execute(CreateTopic("events"))).topic_arn
    app = an_app(f"orders{kind}", timeout=15)
    app.publisher("shipped.fifo", Order)
    app.publisher(Topic(topic), Order)
    assert await check(app, account) == []


async def test_a_service_is_sound_before_its_first_start_and_after_it(account: Account) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    await make(account, "orders")
    app = an_app()
    assert await check(app, account) == []
    async with app.running(account):
        pass
    assert await check(app, account) == []


async def test_queues_that_the_start_creates_are_no_finding(account: Account) -> None:
    spent = Queue("spent", create_if_missing=True, attributes={"MessageRetentionPeriod": TWO_WEEKS})
    app = an_app(Queue("orders", create_if_missing=True), dead_letter=spent)
    app.publisher(Queue("shipped", create_if_missing=True), Order)
    assert await check(app, account) == []
    # what they are declared to be created with is looked at all the same
    app = an_app(
        Queue(
            "orders", create_if_missing=True, attributes={"VisibilityTimeout": "5"}, extend=False
        ),
        dead_letter=spent,
        timeout=10,
    )
    await only(app, account, "PH301")


async def test_how_long_the_queue_itself_would_wait_makes_no_difference(account: Account) -> None:
    """Every receive says how long it waits."""
    await sound(account, ReceiveMessageWaitTimeSeconds="0")
    assert await check(an_app(), account) == []


async def test_a_check_changes_nothing(account: Account) -> None:
    await sound(account, VisibilityTimeout="5", KmsMasterKeyId="alias/shop")
    await make(account, "mail.fifo")
    topic = (await account.execute(CreateTopic("events"))).topic_arn
    await account.execute(Subscribe(topic, "sqs", arn("orders")))
    app = an_app(Queue("orders", sns="auto", extend=False), timeout=50)
    app.subscriber("missing", max_attempts=3, dead_letter="missing-too")(handle)
    app.subscriber("mail.fifo", publish=Topic("events"))(handle)
    app.publisher("nowhere.fifo", Order)
    app.publisher(Topic("nothing"), Order)
    account.ledger.clear()
    assert await check(app, account)
    actions = {entry.action for entry in account.ledger}
    assert {"GetQueueUrl", "GetQueueAttributes", "ListSubscriptions", "ListTopics"} <= actions
    assert not {action for action in actions if not action.startswith(("Get", "List"))}


async def test_each_queue_is_looked_up_once(account: Account) -> None:
    await sound(account)
    app = App("shop")
    for name in ("a", "b", "c"):
        await make(account, name, RedrivePolicy=redrive("spent"))
        app.subscriber(name, max_attempts=5, dead_letter="spent")(handle)
    account.ledger.clear()
    assert await check(app, account) == []
    assert account.ledger.counts["GetQueueAttributes"] == 4 + 1  # and once by its ARN


# --- the queue and the way to it ------------------------------------------------------------------


async def test_a_missing_queue(account: Account) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    finding = await only(an_app(), account, "PH101")
    assert finding.queue == "orders"
    assert "create_if_missing=True" in finding.remedy


@pytest.mark.parametrize("reference", [arn("orders"), f"{HERE}/orders"])
async def test_a_missing_queue_by_url_or_arn(account: Account, reference: str) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    finding = await only(an_app(reference), account, "PH101")
    assert "correct the URL or ARN" in finding.remedy


async def test_a_queue_of_the_other_kind(account: Account) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    await make(account, "orders.fifo")
    finding = await only(an_app(), account, "PH101")
    assert "orders.fifo" in finding.remedy


@pytest.mark.parametrize("action", ["GetQueueUrl", "GetQueueAttributes"])
async def test_a_call_that_is_not_permitted_names_the_action_and_the_queue(
    account: Account, action: str
) -> None:
    await sound(account)
    account.faults.refuse(action, "AccessDenied")
    finding = await only(an_app(), account, "PH102")
    assert f"sqs:{action}" in finding.message
    assert f"permit sqs:{action} on orders" == finding.remedy


async def test_dead_letters_that_can_not_be_looked_up(account: Account) -> None:
    await sound(account)

    class Denies(Doctored):
        async def execute(self, operation: Operation[Any]) -> Any:
            if isinstance(operation, GetQueueAttributes) and operation.queue_url.endswith("spent"):
                raise RefusedConfigError("no", code="AccessDenied", status=403)
            return await super().execute(operation)

    finding = await only(an_app(), Denies(account), "PH102")
    assert finding.remedy == "permit sqs:GetQueueAttributes on spent"
    # the start does not ask for the attributes of one that only the queue's policy names
    finding = await only(an_app(max_attempts=None), Denies(account), "PH107")
    assert "spent" in finding.message


async def test_a_topic_that_can_not_be_looked_up(account: Account) -> None:
    await sound(account)
    topic = (await account.execute(CreateTopic("events"))).topic_arn
    app = an_app(publish=Topic("events"))
    account.faults.refuse("ListTopics", "AuthorizationError")
    finding = await only(app, account, "PH102")
    assert finding.remedy == "permit sns:ListTopics, or name the topic events by its ARN"
    account.faults.refuse(GetTopicAttributes, "AuthorizationError")
    await only(an_app(publish=Topic(topic)), account, "PH107")


async def test_a_destination_whose_attributes_are_not_permitted_still_works(
    account: Account,
) -> None:
    await sound(account)
    await make(account, "shipped")
    app = an_app()
    app.publisher("shipped", Order)

    class Denies(Doctored):
        async def execute(self, operation: Operation[Any]) -> Any:
            if getattr(operation, "queue_url", "").endswith("shipped"):
                raise RefusedConfigError("no", code="AccessDenied", status=403)
            return await super().execute(operation)

    await only(app, Denies(account), "PH107")


@pytest.mark.parametrize(
    ("statement", "denied"),
    [
        ({"Principal": "*", "Action": "sqs:*"}, "sqs:ReceiveMessage, sqs:DeleteMessage"),
        ({"Principal": {"AWS": "*"}, "Action": ["SQS:DeleteMessage"]}, "sqs:DeleteMessage"),
        ({"Principal": "*", "Action": "sqs:*", "Condition": {"Bool": {"x": "1"}}}, None),
        ({"Principal": {"AWS": "111111111111"}, "Action": "sqs:*"}, None),
        ({"Principal": "*", "Action": "sqs:PurgeQueue"}, None),
        ({"Principal": "*", "Action": "sqs:*", "Effect": "Allow"}, None),
    ],
)
async def test_an_access_policy_that_denies(
    account: Account, statement: dict[str, Any], denied: str | None
) -> None:
    policy = {"Statement": [{"Effect": "Deny", "Resource": "*", **statement}]}
    await sound(account, Policy=json.dumps(policy))
    if denied is None:
        assert await check(an_app(), account) == []
    else:
        assert denied in (await only(an_app(), account, "PH103")).message


async def test_short_polling(account: Account) -> None:
    await sound(account)
    await only(an_app(Queue("orders", wait_time_seconds=0)), account, "PH104")


async def test_a_key_names_the_permission_that_it_needs(account: Account) -> None:
    await sound(account, KmsMasterKeyId="alias/shop")
    finding = await only(an_app(), account, "PH105")
    assert "alias/shop" in finding.message
    assert "kms:Decrypt" in finding.remedy
    await make(account, "shipped", KmsMasterKeyId="alias/shop")
    app = App("out")
    app.publisher("shipped", Order)
    assert "kms:GenerateDataKey" in (await only(app, account, "PH105")).remedy


async def test_a_key_of_dead_letters(account: Account) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS, KmsMasterKeyId="alias/shop")
    await make(account, "orders")
    finding = await only(an_app(), account, "PH105")
    assert (finding.queue, "kms:GenerateDataKey" in finding.remedy) == ("spent", True)


async def test_aws_own_key_needs_no_permission(account: Account) -> None:
    await sound(account, KmsMasterKeyId="alias/aws/sqs")
    assert await check(an_app(), account) == []


async def test_a_delay_that_retries_do_not_have(account: Account) -> None:
    await sound(account, ".fifo", DelaySeconds="30")
    await only(an_app("orders.fifo"), account, "PH106")


async def test_half_of_high_throughput(account: Account) -> None:
    await sound(account, ".fifo", DeduplicationScope="messageGroup")
    await only(an_app("orders.fifo"), account, "PH108")


async def test_all_of_high_throughput(account: Account) -> None:
    await sound(
        account,
        ".fifo",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    assert await check(an_app("orders.fifo"), account) == []


# --- dead letters -------------------------------------------------------------------------------


async def test_a_missing_dead_letter_queue(account: Account) -> None:
    await make(account, "orders")
    finding = await only(an_app(), account, "PH201")
    assert "create_if_missing=True" in finding.remedy
    await make(account, "spent.fifo")
    assert "spent.fifo" in (await only(an_app(), account, "PH201")).remedy


async def test_a_missing_dead_letter_queue_of_the_queues_own_policy(account: Account) -> None:
    await sound(account)
    await account.execute(DeleteQueue("spent"))
    await only(an_app(max_attempts=None), account, "PH201")


async def test_queue_and_dead_letter_queue_are_both_missing(account: Account) -> None:
    assert codes(await check(an_app(), account)) == ["PH101", "PH201"]


async def test_a_dead_letter_queue_of_the_other_kind(account: Account) -> None:
    await sound(account)
    await make(account, "spent.fifo", MessageRetentionPeriod=TWO_WEEKS)
    doctored = Doctored(account, orders={"RedrivePolicy": redrive("spent.fifo")})
    await only(an_app(max_attempts=None), doctored, "PH202")
    with pytest.raises(UsageError):  # one that is declared is refused before
        an_app("orders", dead_letter="spent.fifo")


@pytest.mark.parametrize("place", [{"region": "eu-west-1"}, {"account_id": "111111111111"}])
async def test_a_dead_letter_queue_elsewhere(account: Account, place: dict[str, str]) -> None:
    await make(account, "orders")
    elsewhere = account.within(**place)
    url = (
        await elsewhere.execute(CreateQueue("spent", {"MessageRetentionPeriod": TWO_WEEKS}))
    ).queue_url
    finding = await only(an_app(dead_letter=url), account, "PH203")
    assert ("region" if "region" in place else "account") in finding.message


async def test_a_policy_that_is_checked_and_names_another_queue(account: Account) -> None:
    await sound(account, RedrivePolicy="")
    await make(account, "other", MessageRetentionPeriod=TWO_WEEKS)
    app = an_app(redrive="check")
    assert "names none" in (await only(app, account, "PH204")).message
    url = f"{HERE}/orders"
    await account.execute(SetQueueAttributes(url, {"RedrivePolicy": redrive("other")}))
    assert "names other" in (await only(app, account, "PH204")).message
    with pytest.raises(ConfigError):
        async with app.running(account):
            pass


async def test_a_policy_that_is_written_over_another(account: Account) -> None:
    await make(account, "other", MessageRetentionPeriod=TWO_WEEKS)
    await sound(account)
    url = f"{HERE}/orders"
    await account.execute(SetQueueAttributes(url, {"RedrivePolicy": redrive("other")}))
    finding = await only(an_app(), account, "PH205")
    assert "'other'" in finding.remedy


@pytest.mark.parametrize("kind", ["", ".fifo"])
async def test_receives_below_the_attempts(account: Account, kind: str) -> None:
    await sound(account, kind, RedrivePolicy=redrive(f"spent{kind}", 3))
    app = an_app(f"orders{kind}", redrive="check")
    finding = await only(app, account, "PH206")
    assert str(receive_limit(5)) in finding.remedy
    with pytest.raises(ConfigError):
        async with app.running(account):
            pass


@pytest.mark.parametrize("kind", ["", ".fifo"])
async def test_receives_that_leave_no_room(account: Account, kind: str) -> None:
    await sound(account, kind, RedrivePolicy=redrive(f"spent{kind}", receive_limit(5) - 1))
    app = an_app(f"orders{kind}", redrive="check")
    assert str(receive_limit(5)) in (await only(app, account, "PH207")).remedy


async def test_a_fifo_queues_own_policy_leaves_no_room(account: Account) -> None:
    await sound(account, ".fifo")
    finding = await only(an_app("orders.fifo", max_attempts=None), account, "PH207")
    assert "max_attempts=20" in finding.remedy


async def test_a_standard_queues_own_policy_is_fine(account: Account) -> None:
    await sound(account)
    assert await check(an_app(max_attempts=None), account) == []


async def test_a_number_of_receives_that_the_start_changes(account: Account) -> None:
    await sound(account, RedrivePolicy=redrive("spent", 3))
    finding = await only(an_app(), account, "PH208")
    assert f"set {receive_limit(5)}" in finding.remedy


async def test_nothing_ends_a_message_that_always_fails(account: Account) -> None:
    await make(account, "orders")
    finding = await only(an_app(max_attempts=None), account, "PH209")
    assert "4 d" in finding.message


@pytest.mark.parametrize(
    ("source", "letters", "bad"),
    [
        ("345600", "345600", True),
        ("345600", "345601", False),
        (TWO_WEEKS, TWO_WEEKS, True),
        ("345600", "60", True),
    ],
)
async def test_dead_letters_of_a_standard_queue_keep_their_age(
    account: Account, source: str, letters: str, bad: bool
) -> None:
    await make(account, "spent", MessageRetentionPeriod=letters)
    await make(account, "orders", MessageRetentionPeriod=source)
    if not bad:
        assert await check(an_app(), account) == []
        return
    finding = await only(an_app(), account, "PH210")
    where = "of this queue below" if source == TWO_WEEKS else "of spent above"
    assert where in finding.remedy


async def test_dead_letters_of_a_fifo_queue_start_anew(account: Account) -> None:
    await make(account, "spent.fifo", MessageRetentionPeriod="345600")
    await make(account, "orders.fifo", MessageRetentionPeriod=TWO_WEEKS)
    assert await check(an_app("orders.fifo"), account) == []


@pytest.mark.parametrize(
    ("allow", "bad"),
    [
        ({"redrivePermission": "denyAll"}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [arn("other")]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [arn("orders")]}, False),
        ({"redrivePermission": "allowAll"}, False),
    ],
)
async def test_a_dead_letter_queue_that_allows_only_others(
    account: Account, allow: dict[str, Any], bad: bool
) -> None:
    await make(
        account,
        "spent",
        MessageRetentionPeriod=TWO_WEEKS,
        RedriveAllowPolicy=json.dumps(allow),
    )
    await make(account, "orders")
    app = an_app()
    if not bad:
        assert await check(app, account) == []
        return
    await only(app, account, "PH211")
    with pytest.raises(ServiceError, match="allow policy"):  # the start could not write it
        async with app.running(account):
            pass


async def test_dead_letters_that_come_back(account: Account) -> None:
    url = await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    await make(account, "orders", RedrivePolicy=redrive("spent"))
    await account.execute(SetQueueAttributes(url, {"RedrivePolicy": redrive("orders")}))
    finding = await only(an_app(), account, "PH212")
    assert "orders → spent → orders" in finding.message


async def test_dead_letters_that_come_back_by_declarations_alone(account: Account) -> None:
    for name in ("a", "b", "c"):
        await make(account, name, MessageRetentionPeriod=TWO_WEEKS)
    app = App("round")
    for source, target in (("a", "b"), ("b", "c"), ("c", "a")):
        app.subscriber(source, max_attempts=3, dead_letter=target)(handle)
    findings = [each for each in await check(app, account) if each.code != "PH210"]
    assert codes(findings) == ["PH212"] * 3
    assert "a → b → c → a" in findings[0].message


async def test_dead_letters_that_go_on_to_a_third_queue_are_no_circle(account: Account) -> None:
    await make(account, "last", MessageRetentionPeriod=TWO_WEEKS)
    await make(account, "spent", MessageRetentionPeriod="700000", RedrivePolicy=redrive("last"))
    await make(account, "orders")
    assert await check(an_app(), account) == []


async def test_a_dead_letter_queue_that_takes_smaller_messages(account: Account) -> None:
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS, MaximumMessageSize="262144")
    await make(account, "orders")
    assert "1048576" in (await only(an_app(), account, "PH213")).remedy


async def test_a_dead_letter_queue_that_denies_sending(account: Account) -> None:
    policy = {"Statement": {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage"}}
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS, Policy=json.dumps(policy))
    await make(account, "orders")
    assert (await only(an_app(), account, "PH103")).queue == "spent"


# --- leases and times -----------------------------------------------------------------------------


async def test_a_handler_that_may_take_longer_than_its_lease(account: Account) -> None:
    await sound(account, VisibilityTimeout="10")
    await only(an_app(Queue("orders", extend=False), timeout=10), account, "PH301")
    assert await check(an_app(Queue("orders", extend=False), timeout=9), account) == []
    assert await check(an_app(Queue("orders"), timeout=15), account) == []
    # the queue's own does not count where the descriptor says another
    app = an_app(Queue("orders", extend=False, visibility_timeout=20), timeout=15)
    assert await check(app, account) == []


async def test_the_gathering_of_a_batch_is_part_of_its_lease(account: Account) -> None:
    await sound(account, VisibilityTimeout="10")
    app = App("shop")

    @app.subscriber(
        Queue("orders", extend=False),
        max_attempts=5,
        dead_letter="spent",
        batch=50,
        batch_window=5,
        timeout=timedelta(seconds=6),
    )
    async def handle_all(orders: list[dict]) -> None: ...

    assert "11 s" in (await only(app, account, "PH301")).message


async def test_an_unbounded_handler_on_a_lease_that_ends(account: Account) -> None:
    await sound(account)
    await only(an_app(Queue("orders", extend=False)), account, "PH302")
    limited = an_app(Queue("orders", extend=False), middleware=[TimeLimit(10)])
    assert await check(limited, account) == []
    limited = an_app(Queue("orders", extend=False), middleware=[TimeLimit(30)], drain_seconds=60)
    await only(limited, account, "PH301")


async def test_no_time_out_ends_a_thread(account: Account) -> None:
    await sound(account)

    def in_thread(order: dict) -> None: ...

    app = App("shop")
    queue = Queue("orders", extend=False)
    app.subscriber(queue, max_attempts=5, dead_letter="spent", timeout=10)(in_thread)
    assert "thread" in (await only(app, account, "PH302")).message


@pytest.mark.parametrize(("extend", "code"), [(False, "PH303"), (True, "PH304")])
async def test_a_batch_that_gathers_for_longer_than_its_lease(
    account: Account, extend: bool, code: str
) -> None:
    await sound(account)
    app = App("shop")

    @app.subscriber(
        Queue("orders", extend=extend),
        max_attempts=5,
        dead_letter="spent",
        batch=50,
        batch_window=30,
    )
    async def handle_all(orders: list[dict]) -> None: ...

    await only(app, account, code)


async def test_a_visibility_timeout_of_0(account: Account) -> None:
    await sound(account, VisibilityTimeout="0")
    await only(an_app(), account, "PH305")
    with pytest.raises(ConfigError):
        async with an_app().running(account):
            pass


async def test_a_time_out_beyond_all_leases(account: Account) -> None:
    await sound(account)
    app = an_app(Queue("orders", max_lease_seconds=600), timeout=601, drain_seconds=700)
    await only(app, account, "PH306")
    app = an_app(timeout=timedelta(hours=12), drain_seconds=50_000)
    assert "12 h" in (await only(app, account, "PH306")).message


async def test_a_stop_that_is_shorter_than_a_handler_may_take(account: Account) -> None:
    await sound(account)
    finding = await only(an_app(timeout=60), account, "PH307")
    assert "drain_seconds to 60" in finding.remedy

    def in_thread(order: dict) -> None: ...

    app = App("shop")
    app.subscriber("orders", max_attempts=5, dead_letter="spent", timeout=60)(in_thread)
    await only(app, account, "PH308")


@pytest.mark.parametrize(
    ("retry", "attempts", "bad"),
    [
        (43_200, 10, True),  # 9 waits of 12 hours are 4.5 days
        (43_200, 8, False),
        (RetryPolicy(base_seconds=1, cap_seconds=900, max_attempts=None), 900, True),
        (RetryPolicy(base_seconds=1, cap_seconds=900, max_attempts=None), 300, False),
        # of which SQS makes 12 hours from the fifth on
        (lambda attempt: attempt * 10_000.0, 11, True),
        (lambda attempt: attempt * 10_000.0, 10, False),
    ],
)
async def test_messages_that_expire_before_their_attempts_are_used_up(
    account: Account, retry: Any, attempts: int, bad: bool
) -> None:
    await sound(account, RedrivePolicy=redrive("spent", receive_limit(attempts)))
    app = an_app(max_attempts=attempts, retry=retry)
    if bad:
        await only(app, account, "PH309")
    else:
        assert await check(app, account) == []


# --- publishing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", ["publish", "publisher", "decorator", "dead letters"])
async def test_a_missing_destination(account: Account, declared: str) -> None:
    await sound(account)
    app = an_app(publish="shipped") if declared == "publish" else an_app()
    if declared == "publisher":
        app.publisher("shipped", Order)
    elif declared == "decorator":
        app = App("shop")
        shipped = app.publisher("shipped", Order)
        app.subscriber("orders", max_attempts=5, dead_letter="spent")(shipped(handle))
    elif declared == "dead letters":
        await make(account, "sent")
        app.publisher("sent", Order, on_dead_letter="shipped")
    finding = await only(app, account, "PH401")
    assert finding.queue == "shipped"


async def test_a_destination_of_the_other_kind(account: Account) -> None:
    await sound(account)
    await make(account, "shipped.fifo")
    app = an_app()
    app.publisher("shipped", Order)
    assert "shipped.fifo" in (await only(app, account, "PH401")).remedy


@pytest.mark.parametrize("who", ["decorator", "publish", "publisher", "letters"])
async def test_a_destination_that_the_start_makes_is_not_missing(
    account: Account, who: str
) -> None:
    app = App()
    made = Queue("made.fifo", create_if_missing=True)
    source = Queue("in.fifo", create_if_missing=True)
    out = app.publisher(made, dict)
    if who == "publish":

        @app.subscriber(source, publish="made.fifo")
        async def reply(body: dict) -> dict:
            return body

    elif who == "decorator":

        @app.subscriber(source)
        @out
        async def decorated(body: dict) -> dict:
            return body

    else:

        @app.subscriber(source)
        async def handle(body: dict) -> None: ...

        if who == "publisher":
            app.publisher("made.fifo", dict)
        else:
            app.publisher(Queue("other", create_if_missing=True), dict, on_dead_letter="made.fifo")
    assert not {each.code for each in await check(app, account)} & {"PH401", "PH101"}


async def test_a_missing_topic(account: Account) -> None:
    await sound(account)
    app = an_app(publish=Topic("events"))
    await only(app, account, "PH402")
    await account.execute(CreateTopic("events.fifo", {"FifoTopic": "true"}))
    assert "events.fifo" in (await only(app, account, "PH402")).remedy
    by_arn = an_app(publish=Topic("arn:aws:sns:us-east-1:000000000000:events"))
    await only(by_arn, account, "PH402")


async def test_replies_without_a_group(account: Account) -> None:
    await sound(account)
    await make(account, "shipped.fifo")

    async def plain(order: dict) -> Order:
        return Order(1)

    async def with_group(order: dict) -> Reply | None:
        return Reply(Order(1), group_id="1")

    def app_of(function: Callable[..., Any]) -> App:
        app = App("shop")
        app.subscriber("orders", max_attempts=5, dead_letter="spent", publish="shipped.fifo")(
            function
        )
        return app

    assert "group_id" in (await only(app_of(plain), account, "PH403")).remedy
    assert await check(app_of(with_group), account) == []
    for options, expected in (({}, ["PH403"]), ({"group_id": "all"}, [])):
        app = App("shop")
        shipped = app.publisher("shipped.fifo", Order, **options)
        app.subscriber("orders", max_attempts=5, dead_letter="spent")(shipped(plain))
        assert codes(await check(app, account)) == expected


async def test_a_claim_check_that_leaves_too_much(account: Account) -> None:
    await sound(account, MaximumMessageSize="65536")
    large = ClaimCheck(MemoryBlobStore(), inline_max_bytes=100_000)
    await only(an_app(claim_check=large), account, "PH404")
    await make(account, "shipped", MaximumMessageSize="65536")
    app = an_app()
    app.publisher("shipped", Order, claim_check=large)
    assert (await only(app, account, "PH404")).queue == "shipped"
    app = an_app()
    app.publisher("shipped", Order, max_message_bytes=65_537)
    assert "max_message_bytes" in (await only(app, account, "PH404")).remedy
    await account.execute(CreateTopic("events"))
    app = an_app()
    app.publisher(Topic("events"), Order, max_message_bytes=1_048_576)
    assert "262,144" in (await only(app, account, "PH404")).message
    small = ClaimCheck(MemoryBlobStore(), inline_max_bytes=65_536)
    assert await check(an_app(claim_check=small), account) == []


async def test_deduplication_by_content_that_has_no_effect(account: Account) -> None:
    await sound(account)
    await make(account, "shipped.fifo", ContentBasedDeduplication="true")
    fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
    await account.execute(CreateTopic("events.fifo", fifo))
    app = an_app()
    app.publisher("shipped.fifo", Order)
    assert "deduplication_id" in (await only(app, account, "PH405")).remedy
    app = an_app()
    app.publisher(Topic("events.fifo"), Order)
    await only(app, account, "PH405")


async def test_replies_to_destinations_that_nothing_declares(account: Account) -> None:
    async def answer(body: str) -> list[Reply]:
        return [Reply(body, to="elsewhere")]

    await sound(account)
    app = App("shop")
    app.subscriber("orders", max_attempts=5, dead_letter="spent")(answer)
    assert "app.publisher" in (await only(app, account, "PH407")).remedy
    app.publisher("elsewhere")
    await only(app, account, "PH401")
    await make(account, "elsewhere")
    assert await check(app, account) == []


async def test_what_is_published_is_not_what_is_handled(account: Account) -> None:
    await sound(account)

    async def of_order(order: Order) -> None: ...

    async def of_text(text: str) -> None: ...

    def app_of(function: Callable[..., Any], kind: Any) -> App:
        app = App("shop")
        app.subscriber("orders", max_attempts=5, dead_letter="spent")(function)
        app.publisher("orders", kind)
        return app

    assert "Invoice" in (await only(app_of(of_order, Invoice), account, "PH406")).message
    await only(app_of(of_text, bytes), account, "PH406")
    assert await check(app_of(of_order, Order), account) == []
    assert await check(app_of(of_order, dict), account) == []


# --- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "mode", "bad"),
    [
        (True, "raw", False),
        (False, "raw", True),
        (True, "envelope", True),
        (False, "envelope", False),
        (True, "auto", False),
        (False, "auto", False),
    ],
)
async def test_envelopes_that_are_not_expected(
    account: Account, raw: bool, mode: Any, bad: bool
) -> None:
    await sound(account)
    await account.execute(CreateTopic("events"))
    await subscribe_queue_to_topic(account, "orders", "events", raw_message_delivery=raw)
    app = an_app(Queue("orders", sns=mode))
    if bad:
        assert "events" in (await only(app, account, "PH501")).message
    else:
        assert await check(app, account) == []


@pytest.mark.parametrize(
    ("condition", "bad"),
    [
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:000000000000:events"}}, False),
        ({"ArnLike": {"AWS:SourceArn": "arn:aws:sns:*:*:ev*"}}, False),
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:000000000000:other"}}, True),
        ({"StringEquals": {"aws:SourceAccount": "000000000000"}}, False),
        (None, False),
    ],
)
async def test_a_topic_that_may_not_send(
    account: Account, condition: dict[str, Any] | None, bad: bool
) -> None:
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn("orders"),
    }
    if condition:
        statement["Condition"] = condition
    await sound(account, Policy=json.dumps({"Statement": [statement]}))
    topic = (await account.execute(CreateTopic("events"))).topic_arn
    await account.execute(Subscribe(topic, "sqs", arn("orders"), {"RawMessageDelivery": "true"}))
    if bad:
        assert "subscribe_queue_to_topic" in (await only(an_app(), account, "PH502")).remedy
    else:
        assert await check(an_app(), account) == []


async def test_a_topic_without_any_policy_of_its_queue(account: Account) -> None:
    await sound(account)
    topic = (await account.execute(CreateTopic("events"))).topic_arn
    await account.execute(Subscribe(topic, "sqs", arn("orders"), {"RawMessageDelivery": "true"}))
    await only(an_app(), account, "PH502")


async def test_a_key_that_no_topic_can_use(account: Account) -> None:
    await sound(account, KmsMasterKeyId="alias/aws/sqs")
    await account.execute(CreateTopic("events"))
    await subscribe_queue_to_topic(account, "orders", "events")
    assert "sns.amazonaws.com" in (await only(an_app(), account, "PH503")).remedy


@pytest.mark.parametrize("mode", ["envelope", "auto"])
async def test_no_topic_is_subscribed(account: Account, mode: Any) -> None:
    await sound(account)
    await only(an_app(Queue("orders", sns=mode)), account, "PH504")


async def test_subscriptions_that_can_not_be_listed(account: Account) -> None:
    await sound(account)
    account.faults.refuse("ListSubscriptions", "AuthorizationError", times=None)
    assert await check(an_app(), account) == []  # nothing of it is of SNS
    await only(an_app(Queue("orders", sns="envelope")), account, "PH107")
    finding = await only(an_app(Queue("orders", sns="auto")), account, "PH102")
    assert "sns:ListSubscriptions" in finding.remedy


async def test_an_endpoint_without_sns(account: Account) -> None:
    await sound(account)
    account.faults.refuse("ListSubscriptions", "InvalidAction", times=None)
    assert await check(an_app(), account) == []


# --- options without effect ---------------------------------------------------------------------


async def test_priorities_without_effect(account: Account) -> None:
    await sound(account)
    await make(account, "mail", RedrivePolicy=redrive("spent"))
    app = an_app(priority=1)
    await only(app, account, "PH601")
    app.subscriber("mail", max_attempts=5, dead_letter="spent", priority=1)(handle)
    await only(app, account, "PH601")
    app = an_app(priority=1)
    app.subscriber("mail", max_attempts=5, dead_letter="spent", priority=2)(handle)
    assert await check(app, account) == []


async def test_a_partition_key_without_effect(account: Account) -> None:
    await sound(account)

    def key_of(order: dict[str, Any]) -> str:
        return str(order["id"])

    await only(an_app(partition_key=key_of, concurrency=1), account, "PH602")
    assert await check(an_app(partition_key=key_of, concurrency=2), account) == []


# --- what keeps it from looking -----------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NetworkError("no route"),
        NoCredentialsError("none found"),
        RefusedConfigError("no such key", code="InvalidClientTokenId", status=403),
    ],
)
async def test_what_keeps_it_from_looking_is_raised(account: Account, error: Exception) -> None:
    class Broken(Doctored):
        async def execute(self, operation: Operation[Any]) -> Any:
            raise error

    with pytest.raises(type(error)):
        await check(an_app(), Broken(account))


async def test_the_subscriptions_are_needed_where_the_app_says_so(account: Account) -> None:
    await sound(account)
    account.faults.refuse("ListSubscriptions", "InvalidAction", times=None)
    with pytest.raises(ServiceError):
        await check(an_app(Queue("orders", sns="auto")), account)


# --- all together -------------------------------------------------------------------------------


async def test_findings_come_by_queue_and_the_worst_first(account: Account) -> None:
    await sound(account, VisibilityTimeout="5", KmsMasterKeyId="alias/shop")
    app = an_app(Queue("orders", extend=False, wait_time_seconds=0), timeout=10)
    app.subscriber("mail")(handle)
    findings = await check(app, account)
    assert [(each.queue, each.code) for each in findings] == [
        ("orders", "PH301"),
        ("orders", "PH104"),
        ("orders", "PH105"),
        ("mail", "PH101"),
    ]


def test_every_code_has_its_number_and_its_meaning() -> None:
    assert list(KINDS) == sorted(KINDS)
    assert len({kind.title for kind in KINDS.values()}) == len(KINDS)


def test_every_code_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    rows = re.findall(r"(?m)^\| `(PH\d+)` \| (\w+) \| (.+) \|$", page)
    assert rows == [(code, kind.severity, kind.title) for code, kind in KINDS.items()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (30, "30 s"), (60, "1 min"), (90, "90 s"), (900, "15 min"), (5400, "90 min")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_spans_of_days() -> None:
    assert span(345_600) == "4 d"
    assert span(43_200) == "12 h"


async def test_a_check_of_many_queues_is_bounded(account: Account) -> None:
    """Two requests a queue at most, whatever there is in the account."""
    await make(account, "spent", MessageRetentionPeriod=TWO_WEEKS)
    app = App("many")
    for number in range(30):
        name = f"queue-{number}"
        await make(account, name, RedrivePolicy=redrive("spent"))
        app.subscriber(name, max_attempts=5, dead_letter="spent")(handle)
    account.ledger.clear()
    assert await asyncio.wait_for(check(app, account), 30) == []
    assert len(account.ledger) <= 2 * 31 + 3


# --- apps of all kinds --------------------------------------------------------------------------


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(app=apps(references=("",)), refused=st.sampled_from([None, *REFUSABLE]))
def test_whatever_is_declared_is_checked_and_nothing_changed(app: App, refused: str | None) -> None:
    async def checks() -> None:
        account = Account(clock=VirtualClock(), ledger_room=10_000)
        before = await check(app, account)
        assert {each.queue for each in before if each.code == "PH101"} == {
            each.queue.known_as.name for each in app.subscriptions
        }
        await make_queues(account, app)
        account.ledger.clear()
        if refused is not None:
            account.faults.refuse(refused, "AccessDenied", times=None)
        after = await check(app, account)
        assert not {each.code for each in after} & {"PH101", "PH201", "PH401", "PH402", "PH103"}
        if refused is None:
            assert not {each.code for each in after} & {"PH102", "PH107"}
        assert all(each.severity == KINDS[each.code].severity for each in after)
        assert len(set(after)) == len(after)
        assert not [each for each in account.ledger if not each.action.startswith(("Get", "List"))]

    asyncio.run(checks())


REFUSED_AT_THE_START = {"PH101", "PH102", "PH204", "PH206", "PH305", "PH401", "PH402"}


@settings(max_examples=40, deadline=None)
@given(
    made=st.sets(st.sampled_from(["orders", "spent", "other", "shipped", "news"])).map(sorted),
    leads_to=st.sampled_from(["", "spent", "other"]),
    receives=st.integers(1, 25),
    visibility=st.sampled_from(["0", "30"]),
    allow=st.sampled_from(["", "denyAll", "allowAll"]),
    declared=st.sampled_from([None, "write", "check"]),
    publish=st.sampled_from([None, "shipped", Topic("news")]),
    mode=st.sampled_from(["raw", "auto"]),
    refused=st.sampled_from([None, None, "GetQueueUrl", "GetQueueAttributes", "ListSubscriptions"]),
)
def test_a_service_without_errors_starts(
    made: list[str],
    leads_to: str,
    receives: int,
    visibility: str,
    allow: str,
    declared: Any,
    publish: Any,
    mode: Any,
    refused: str | None,
) -> None:
    """Whatever the start refuses has been found before, and what is said to be refused is."""

    async def tries() -> None:
        account = Account(clock=VirtualClock())
        for name in made:
            if name == "news":
                await account.execute(CreateTopic("news"))
            elif name != "orders":
                await make(account, name)
        if "orders" in made:
            url = await make(account, "orders", VisibilityTimeout=visibility)
            if leads_to in made:
                policy = {"RedrivePolicy": redrive(leads_to, receives)}
                await account.execute(SetQueueAttributes(url, policy))
        if allow and "spent" in made:
            policy = {"RedriveAllowPolicy": json.dumps({"redrivePermission": allow})}
            await account.execute(SetQueueAttributes(f"{HERE}/spent", policy))
        queue = Queue("orders", sns=mode)
        options = {} if declared is None else {"redrive": declared}
        attempts = None if declared is None else 5
        app = an_app(queue, max_attempts=attempts, publish=publish, **options)
        if refused is not None:
            account.faults.refuse(refused, "AccessDenied", times=None)
        findings = await check(app, account)
        errors = {each.code for each in findings if each.severity == "error"}
        try:
            async with app.running(account):
                started = True
        except (ConfigError, ServiceError):
            started = False
        assert started or errors
        assert not started or not errors & REFUSED_AT_THE_START

    asyncio.run(tries())


def test_every_code_is_planted() -> None:
    planted = set(re.findall(r'"(PH\d+)"', Path(__file__).read_text()))
    assert planted >= KINDS.keys()
