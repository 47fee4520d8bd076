"""Queue attributes: defaults, what AWS takes and refuses, and what it shows of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.account.settings import QueueSettings, created
from pumphouse.clock import VirtualClock
from pumphouse.errors import OverLimit, QueueNameExists, RefusedError, ServiceError
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    ReceiveMessage,
    SendMessage,
    SetQueueAttributes,
)

Make = Callable[..., Awaitable[str]]

DEFAULTS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "CreatedTimestamp": "1700000000",
    "DelaySeconds": "0",
    "LastModifiedTimestamp": "1700000000",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS = {
    **DEFAULTS,
    "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q.fifo",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}


@pytest.fixture
def make(account: Account) -> Make:
    async def make(name: str = "q", **attributes: str) -> str:
        return (await account.execute(CreateQueue(name, attributes or None))).queue_url

    return make


async def shown(account: Account, url: str, *names: str) -> dict[str, str]:
    return (await account.execute(GetQueueAttributes(url, list(names) or ["All"]))).attributes


def refusal(code: str, message: str = "") -> Callable[[ServiceError], bool]:
    def check(error: ServiceError) -> bool:
        return (
            error.code == code
            and error.sender_fault
            and error.status < 500
            and (not message or error.message == message)
        )

    return check


async def test_defaults(account: Account, make: Make) -> None:
    assert await shown(account, await make()) == DEFAULTS
    assert await shown(account, await make("q.fifo", FifoQueue="true")) == FIFO_DEFAULTS


async def test_only_what_is_asked_for_and_there(account: Account, make: Make) -> None:
    url = await make()
    assert await shown(account, url, "QueueArn", "Policy", "FifoQueue") == {
        "QueueArn": DEFAULTS["QueueArn"]
    }
    assert (await account.execute(GetQueueAttributes(url))).attributes == {}
    assert (await account.execute(GetQueueAttributes(url, []))).attributes == {}
    assert await shown(account, url, "QueueArn", "All") == DEFAULTS


async def test_asking_for_what_is_no_attribute(account: Account, make: Make) -> None:
    with pytest.raises(RefusedError) as raised:
        await shown(account, await make(), "QueueArn", "Foobar")
    assert refusal("InvalidAttributeName", "Unknown Attribute Foobar.")(raised.value)


RANGES = [
    ("DelaySeconds", 0, 900),
    ("MaximumMessageSize", 1024, 1_048_576),
    ("MessageRetentionPeriod", 60, 1_209_600),
    ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ("VisibilityTimeout", 0, 43_200),
]


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
async def test_ranges(account: Account, make: Make, name: str, low: int, high: int) -> None:
    url = await make()
    for value in (low, high):
        await account.execute(SetQueueAttributes(url, {name: str(value)}))
        assert await shown(account, url, name) == {name: str(value)}
    for text in (str(low - 1), str(high + 1), "", " 1", "1.5", "many", "٣", "9" * 5000, "-0"):
        with pytest.raises(RefusedError) as raised:
            await account.execute(SetQueueAttributes(url, {name: text}))
        words = f"Invalid value for the parameter {name}."
        assert refusal("InvalidAttributeValue", words)(raised.value), text
        with pytest.raises(RefusedError):
            await make("other", **{name: text})
    assert await shown(account, url, name) == {name: str(high)}


async def test_all_or_nothing_is_set(account: Account, make: Make) -> None:
    url = await make()
    with pytest.raises(RefusedError):
        await account.execute(
            SetQueueAttributes(url, {"VisibilityTimeout": "5", "DelaySeconds": "-1"})
        )
    assert await shown(account, url) == DEFAULTS


async def test_nothing_to_set(account: Account, make: Make) -> None:
    url = await make()
    with pytest.raises(RefusedError) as raised:
        await account.execute(SetQueueAttributes(url, {}))
    words = "The request must contain the parameter Attribute.Name."
    assert refusal("MissingParameter", words)(raised.value)


async def test_setting_is_told_by_the_time(
    account: Account, make: Make, clock: VirtualClock
) -> None:
    url = await make()
    await clock.advance(10.9)
    await account.execute(SetQueueAttributes(url, {"VisibilityTimeout": "5"}))
    times = await shown(account, url, "CreatedTimestamp", "LastModifiedTimestamp")
    assert times == {"CreatedTimestamp": "1700000000", "LastModifiedTimestamp": "1700000010"}


@pytest.mark.parametrize(
    "name", ["Foobar", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "All"]
)
async def test_what_cant_be_set(account: Account, make: Make, name: str) -> None:
    url = await make()
    for operation in (
        SetQueueAttributes(url, {name: "1"}),
        CreateQueue("other", {name: "1"}),
    ):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        assert refusal("InvalidAttributeName", f"Unknown Attribute {name}.")(raised.value)


@pytest.mark.parametrize("value", ["yes", "", "1"])
async def test_what_is_no_boolean(account: Account, make: Make, value: str) -> None:
    with pytest.raises(RefusedError) as raised:
        await make("q.fifo", FifoQueue="true", ContentBasedDeduplication=value)
    words = "Invalid value for the parameter ContentBasedDeduplication."
    assert refusal("InvalidAttributeValue", words)(raised.value)


async def test_booleans_are_shown_in_small_letters(account: Account, make: Make) -> None:
    url = await make("q.fifo", FifoQueue="True", ContentBasedDeduplication="TRUE")
    names = ("FifoQueue", "ContentBasedDeduplication")
    assert await shown(account, url, *names) == dict.fromkeys(names, "true")


@pytest.mark.parametrize(
    ("name", "value"), [("DeduplicationScope", "group"), ("FifoThroughputLimit", "perGroup")]
)
def test_choices(name: str, value: str) -> None:
    with pytest.raises(RefusedError) as raised:
        created("q.fifo", {"FifoQueue": "true", name: value})
    words = f"Invalid value for the parameter {name}."
    assert refusal("InvalidAttributeValue", words)(raised.value)


def test_a_limit_per_group_needs_a_scope_of_groups() -> None:
    words = (
        "Invalid value for the parameter FifoThroughputLimit. Reason: To set FifoThroughputLimit "
        "to perMessageGroupId, the DeduplicationScope must be messageGroup."
    )
    with pytest.raises(RefusedError) as raised:
        created("q.fifo", {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"})
    assert refusal("InvalidAttributeValue", words)(raised.value)
    high = created(
        "q.fifo",
        {
            "FifoQueue": "true",
            "FifoThroughputLimit": "perMessageGroupId",
            "DeduplicationScope": "messageGroup",
        },
    )
    with pytest.raises(RefusedError, match=words):
        high.changed({"DeduplicationScope": "queue"})
    assert high.changed({"FifoThroughputLimit": "perQueue"}).deduplication_scope == "messageGroup"


# --- encryption ---------------------------------------------------------------------------------


async def test_a_key_takes_the_place_of_managed_encryption(account: Account, make: Make) -> None:
    url = await make()
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    await account.execute(SetQueueAttributes(url, {"KmsMasterKeyId": "alias/aws/sqs"}))
    assert await shown(account, url, *names) == {
        "KmsMasterKeyId": "alias/aws/sqs",
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
    }
    await account.execute(SetQueueAttributes(url, {"SqsManagedSseEnabled": "true"}))
    assert await shown(account, url, *names) == {"SqsManagedSseEnabled": "true"}
    with pytest.raises(RefusedError, match="You can use one type of server-side encryption"):
        await account.execute(
            SetQueueAttributes(url, {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": "k"})
        )
    with pytest.raises(RefusedError, match="KmsDataKeyReusePeriodSeconds"):
        await account.execute(SetQueueAttributes(url, {"KmsDataKeyReusePeriodSeconds": "59"}))


# --- policies -----------------------------------------------------------------------------------

STATEMENT = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}


async def test_an_access_policy_is_kept_and_taken_away(account: Account, make: Make) -> None:
    url = await make()
    policy = {"Version": "2012-10-17", "Statement": [STATEMENT]}
    await account.execute(SetQueueAttributes(url, {"Policy": json.dumps(policy, indent=2)}))
    assert json.loads((await shown(account, url, "Policy"))["Policy"]) == policy
    await account.execute(SetQueueAttributes(url, {"Policy": ""}))
    assert await shown(account, url, "Policy") == {}


@pytest.mark.parametrize(
    "policy",
    [
        "badjson",
        "[]",
        '"text"',
        "null",
        "5",
        "{}",
        json.dumps({"Version": "2012-10-17", "Statement": []}),
        json.dumps({"Version": "4532-10-17", "Statement": [STATEMENT]}),
        json.dumps({"Version": "2012-10-17", "Statement": ["text"]}),
        json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT], "Dummy": 1}),
        json.dumps({"Version": "2012-10-17", "Statement": {**STATEMENT, "Dummy": 1}}),
        json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow"}}),
        json.dumps({"Version": "2012-10-17", "Statement": [{**STATEMENT, "Effect": "Maybe"}]}),
        json.dumps({"Statement": [{**STATEMENT, "Condition": {"N": {"a": float("inf")}}}]}),
        json.dumps({"Statement": [{**STATEMENT, "Condition": {"a": 0}}]}).replace("0", "1e999"),
        json.dumps({"Statement": [{**STATEMENT, "Sid": "\ud800"}]}),
        "[" * 100_000,
    ],
)
def test_what_is_no_access_policy(policy: str) -> None:
    with pytest.raises(RefusedError) as raised:
        QueueSettings().changed({"Policy": policy})
    assert refusal("InvalidAttributeValue", "Invalid value for the parameter Policy.")(raised.value)


def test_a_policy_has_twenty_statements_at_most() -> None:
    policy = {"Version": "2012-10-17", "Statement": [STATEMENT] * 21}
    with pytest.raises(OverLimit, match="21 statements were found in the submitted policy"):
        QueueSettings().changed({"Policy": json.dumps(policy)})


ARN = "arn:aws:sqs:us-east-1:000000000000:"


def redrive(target: str, count: object = 5, **more: object) -> str:
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count, **more})


async def test_a_redrive_policy_is_shown_as_aws_shows_it(account: Account, make: Make) -> None:
    await make("dead")
    url = await make()
    for count in (42, "42"):
        await account.execute(
            SetQueueAttributes(url, {"RedrivePolicy": redrive(ARN + "dead", count)})
        )
        assert await shown(account, url, "RedrivePolicy") == {
            "RedrivePolicy": f'{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":42}}'
        }
    await account.execute(SetQueueAttributes(url, {"RedrivePolicy": ""}))
    assert await shown(account, url, "RedrivePolicy") == {}


def wrong_count(count: str) -> str:
    return (
        f"Invalid value for maxReceiveCount: {count}, "
        "valid values are from 1 to 1000 both inclusive."
    )


LACKS = "Redrive policy does not contain mandatory attribute: "
ONLY = "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn]."
NO_QUEUE = "Only SQS queues are valid resources for deadLetterTargetArn."
OTHER_KIND = "Dead-letter queue must be same type of queue as the source.."
ELSEWHERE = "Dead-letter target must be in same region as the source."
OTHER_OWNER = "Dead-letter target owner should be same as the source."


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (redrive(ARN + "nowhere"), "Dead letter target does not exist."),
        (redrive(ARN + "dead", 0), wrong_count("0")),
        (redrive(ARN + "dead", 1001), wrong_count("1001")),
        (redrive(ARN + "dead", "invalid"), wrong_count("invalid")),
        (redrive(ARN + "dead", 1.5), wrong_count("1.5")),
        (redrive(ARN + "dead", True), wrong_count("true")),
        (redrive(ARN + "dead", 5, dummy=1), ONLY),
        (redrive("dummy", 42), "Invalid value for deadLetterTargetArn."),
        (redrive("arn:aws:sns:us-east-1:000000000000:topic"), NO_QUEUE),
        ("{}", LACKS + "maxReceiveCount."),
        ('{"maxReceiveCount":5}', LACKS + "deadLetterTargetArn."),
        (redrive(ARN + "dead.fifo"), OTHER_KIND),
        (redrive("arn:aws:sqs:eu-west-1:000000000000:dead"), ELSEWHERE),
        (redrive("arn:aws:sqs:us-east-1:111111111111:dead"), OTHER_OWNER),
    ],
)
async def test_redrive_policies_that_aws_refuses(
    account: Account, make: Make, policy: str, reason: str
) -> None:
    await make("dead")
    await make("dead.fifo", FifoQueue="true")
    url = await make()
    words = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}"
    for operation in (
        SetQueueAttributes(url, {"RedrivePolicy": policy}),
        CreateQueue("other", {"RedrivePolicy": policy}),
    ):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        assert refusal("InvalidParameterValue", words)(raised.value)


@pytest.mark.parametrize("policy", [" ", "badjson", "[]", "4", "null"])
def test_a_redrive_policy_that_is_no_map(policy: str) -> None:
    with pytest.raises(RefusedError) as raised:
        QueueSettings().changed({"RedrivePolicy": policy})
    words = (
        "Invalid value for the parameter RedrivePolicy. "
        "Reason: Redrive policy is not a valid JSON map."
    )
    assert refusal("InvalidAttributeValue", words)(raised.value)


def allow(permission: str, *sources: str) -> str:
    policy: dict[str, object] = {"redrivePermission": permission}
    if sources:
        policy["sourceQueueArns"] = sources
    return json.dumps(policy)


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (allow("allowAll"), True),
        (allow("denyAll"), False),
        (allow("byQueue", ARN + "q"), True),
        (allow("byQueue", ARN + "other", ARN + "another"), False),
        ("", True),
    ],
)
async def test_who_may_send_dead_letters(
    account: Account, make: Make, policy: str, allowed: bool
) -> None:
    dead = await make("dead", RedriveAllowPolicy=policy)
    kept = (await shown(account, dead)).get("RedriveAllowPolicy", "")
    assert kept == policy.replace(" ", "")
    text = redrive(ARN + "dead")
    if allowed:
        await make("q", RedrivePolicy=text)
        return
    for operation in (
        CreateQueue("new", {"RedrivePolicy": text}),
        SetQueueAttributes(await make("q"), {"RedrivePolicy": text}),
    ):
        with pytest.raises(RefusedError, match="does not allow this source queue") as raised:
            await account.execute(operation)
        assert refusal("InvalidParameterValue")(raised.value)


UNSUPPORTED = (
    "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the "
    "redrive allow policy, as it\u2019s in an unsupported format."
)
CANT = "Reason: Amazon SQS can't create the redrive allow policy. "


@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        ("badjson", "InvalidAttributeValue", UNSUPPORTED),
        ("[]", "InvalidAttributeValue", UNSUPPORTED),
        ("{}", "InvalidAttributeValue", UNSUPPORTED),
        (allow("dummy"), "InvalidAttributeValue", UNSUPPORTED),
        ('{"redrivePermission":"allowAll","dummy":1}', "InvalidAttributeValue", UNSUPPORTED),
        (
            '{"redrivePermission":"byQueue","sourceQueueArns":"arn"}',
            "InvalidAttributeValue",
            UNSUPPORTED,
        ),
        (
            allow("byQueue"),
            "InvalidParameterValue",
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values.",
        ),
        (
            allow("byQueue", *(f"{ARN}{i}" for i in range(11))),
            "InvalidParameterValue",
            "The maximum number of source queue ARNs you can specify is 10.",
        ),
        (
            allow("denyAll", ARN + "q"),
            "InvalidParameterValue",
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        ),
    ],
)
def test_redrive_allow_policies_that_aws_refuses(policy: str, code: str, words: str) -> None:
    with pytest.raises(RefusedError) as raised:
        QueueSettings().changed({"RedriveAllowPolicy": policy})
    if code == "InvalidParameterValue":
        words = f"Value {policy} for parameter RedriveAllowPolicy is invalid. {CANT}{words}"
    assert refusal(code, words)(raised.value)


async def test_sources_of_dead_letters_are_of_the_same_region(account: Account, make: Make) -> None:
    url = await make()
    policy = allow("byQueue", ARN + "near", "arn:aws:sqs:eu-west-1:000000000000:far")
    words = "All source queue ARNs must be in the same region as the current SQS queue."
    for operation in (
        SetQueueAttributes(url, {"RedriveAllowPolicy": policy}),
        CreateQueue("other", {"RedriveAllowPolicy": policy}),
    ):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        whole = f"Value {policy} for parameter RedriveAllowPolicy is invalid. {CANT}{words}"
        assert refusal("InvalidParameterValue", whole)(raised.value)
    elsewhere = account.within(region="eu-west-1")
    far = allow("byQueue", "arn:aws:sqs:eu-west-1:000000000000:far")
    await elsewhere.execute(CreateQueue("dead", {"RedriveAllowPolicy": far}))


# --- creating what exists -----------------------------------------------------------------------


async def test_creating_again(account: Account, make: Make) -> None:
    await make("dead")
    attributes = {
        "DelaySeconds": "1",
        "RedrivePolicy": redrive(ARN + "dead"),
        "Policy": json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]}),
    }
    url = await make(**attributes)
    assert await make() == url
    assert await make(**attributes) == url
    assert await make(DelaySeconds="1") == url
    other = attributes["RedrivePolicy"].replace(" ", "").replace("5", '"5"')
    assert await make(RedrivePolicy=other) == url
    assert await make(VisibilityTimeout="30") == url
    for name, value in (("DelaySeconds", "2"), ("VisibilityTimeout", "31"), ("Policy", "")):
        with pytest.raises(QueueNameExists) as raised:
            await make(**{name: value})
        assert raised.value.message == (
            "A queue already exists with the same name and a different value for attribute " + name
        )
        assert raised.value.query_code == "QueueAlreadyExists"
    await account.execute(SetQueueAttributes(url, {"DelaySeconds": "2"}))
    assert await make(DelaySeconds="2") == url
    with pytest.raises(RefusedError, match="Unknown Attribute Foobar"):
        await make(Foobar="1")


async def test_creating_again_with_other_tags(account: Account) -> None:
    url = (await account.execute(CreateQueue("q", tags={"a": "1"}))).queue_url
    assert (await account.execute(CreateQueue("q"))).queue_url == url
    assert (await account.execute(CreateQueue("q", tags={"a": "1"}))).queue_url == url
    with pytest.raises(QueueNameExists, match="tag"):
        await account.execute(CreateQueue("q", tags={"a": "2"}))


names_and_values = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: st.one_of(st.integers(low, high), st.sampled_from([low, high])).map(str)
            for name, low, high in RANGES
        },
        "SqsManagedSseEnabled": st.sampled_from(["true", "false"]),
        "KmsDataKeyReusePeriodSeconds": st.integers(60, 86_400).map(str),
        "RedrivePolicy": st.integers(1, 1000).map(lambda count: redrive(ARN + "dead", count)),
        "RedriveAllowPolicy": st.sampled_from([allow("denyAll"), allow("byQueue", ARN + "a")]),
        "Policy": st.just(json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})),
    },
)
fifo_values = st.fixed_dictionaries(
    {"FifoQueue": st.just("true")},
    optional={
        "ContentBasedDeduplication": st.sampled_from(["true", "false"]),
        "DeduplicationScope": st.just("messageGroup"),
    },
)


@given(names_and_values, st.one_of(st.just({}), fifo_values))
def test_what_is_shown_is_what_was_set(plain: dict[str, str], fifo: dict[str, str]) -> None:
    name = "q.fifo" if fifo else "q"
    settings = created(name, {**plain, **fifo})
    shown = settings.shown()
    assert settings.difference(shown) is None
    assert created(name, shown).shown() == shown
    for key, value in {**plain, **fifo}.items():
        if key == "KmsDataKeyReusePeriodSeconds":
            continue  # shown only beside a key
        if key.endswith("Policy"):
            assert json.loads(shown[key]) == json.loads(value)
        else:
            assert shown[key] == value


# --- what setting does to messages --------------------------------------------------------------


async def bodies(account: Account, url: str) -> list[str]:
    answer = await account.execute(ReceiveMessage(url, max_number_of_messages=10))
    return [message.body for message in answer.messages]


async def test_a_new_delay_holds_for_what_comes_on_a_standard_queue(
    account: Account, make: Make, clock: VirtualClock
) -> None:
    url = await make(DelaySeconds="10")
    await account.execute(SendMessage(url, "before"))
    await account.execute(SetQueueAttributes(url, {"DelaySeconds": "60"}))
    await account.execute(SendMessage(url, "after"))
    await clock.advance(10)
    assert await bodies(account, url) == ["before"]
    await clock.advance(50)
    assert "after" in await bodies(account, url)


@pytest.mark.parametrize("delay", [60, 0, 3])
async def test_a_new_delay_holds_for_everything_on_a_fifo_queue(
    account: Account, make: Make, clock: VirtualClock, delay: int
) -> None:
    url = await make("q.fifo", FifoQueue="true", DelaySeconds="10", VisibilityTimeout="0")
    await account.execute(SendMessage(url, "a", message_group_id="g", message_deduplication_id="a"))
    await clock.advance(1)
    await account.execute(SetQueueAttributes(url, {"DelaySeconds": str(delay)}))
    await clock.advance(max(0, delay - 1.5))
    assert await bodies(account, url) == ([] if delay else ["a"])
    await clock.advance(0.5)
    assert await bodies(account, url) == ["a"]


async def test_a_shorter_retention_takes_what_is_too_old(
    account: Account, make: Make, clock: VirtualClock
) -> None:
    url = await make()
    await account.execute(SendMessage(url, "old"))
    await clock.advance(100)
    await account.execute(SetQueueAttributes(url, {"MessageRetentionPeriod": "60"}))
    counts = await shown(account, url, "ApproximateNumberOfMessages")
    assert counts == {"ApproximateNumberOfMessages": "0"}


async def test_counts(account: Account, make: Make, clock: VirtualClock) -> None:
    url = await make()
    for delay in (0, 0, 5):
        await account.execute(SendMessage(url, "x", delay_seconds=delay))
    await account.execute(ReceiveMessage(url))
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )
    assert tuple((await shown(account, url, *names)).values()) == ("1", "1", "1")
    await clock.advance(5)
    assert tuple((await shown(account, url, *names)).values()) == ("2", "1", "0")
    await clock.advance(25)
    assert tuple((await shown(account, url, *names)).values()) == ("3", "0", "0")
