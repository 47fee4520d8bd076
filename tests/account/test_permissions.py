"""Permissions as statements of a queue's policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.errors import OverLimit, RefusedError
from pumphouse.protocol.operations import (
    AddPermission,
    CreateQueue,
    GetQueueAttributes,
    RemovePermission,
)

ACCOUNT = "123456789012"


@pytest.fixture
async def url(account: Account) -> str:
    return (await account.execute(CreateQueue("q"))).queue_url


async def policy_of(account: Account, url: str) -> dict[str, Any] | None:
    attributes = (await account.execute(GetQueueAttributes(url, ["Policy"]))).attributes
    return json.loads(attributes["Policy"]) if attributes else None


async def test_a_statement_as_aws_writes_it(account: Account, url: str) -> None:
    arn = "arn:aws:sqs:us-east-1:000000000000:q"
    await account.execute(AddPermission(url, "one", [ACCOUNT], ["SendMessage"]))
    await account.execute(
        AddPermission(url, "two", [ACCOUNT, "210987654321"], ["ReceiveMessage", "*"])
    )
    assert await policy_of(account, url) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
                "Action": "SQS:SendMessage",
                "Resource": arn,
            },
            {
                "Sid": "two",
                "Effect": "Allow",
                "Principal": {
                    "AWS": [f"arn:aws:iam::{ACCOUNT}:root", "arn:aws:iam::210987654321:root"]
                },
                "Action": ["SQS:ReceiveMessage", "SQS:*"],
                "Resource": arn,
            },
        ],
    }


async def test_a_policy_of_ones_own_is_added_to(account: Account) -> None:
    own = {"Sid": "own", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": own}
    create = CreateQueue("q", {"Policy": json.dumps(policy)})
    url = (await account.execute(create)).queue_url
    await account.execute(AddPermission(url, "one", [ACCOUNT], ["SendMessage"]))
    after = await policy_of(account, url)
    assert after is not None
    assert after["Version"] == "2012-10-17"
    assert [statement["Sid"] for statement in after["Statement"]] == ["own", "one"]
    await account.execute(RemovePermission(url, "own"))
    await account.execute(RemovePermission(url, "one"))
    assert await policy_of(account, url) is None


@pytest.mark.parametrize(
    ("label", "accounts", "actions", "code", "words"),
    [
        ("", [ACCOUNT], ["SendMessage"], "MissingParameter", "parameter Label."),
        ("a b", [ACCOUNT], ["SendMessage"], "InvalidParameterValue", "alphanumeric"),
        ("x" * 81, [ACCOUNT], ["SendMessage"], "InvalidParameterValue", "1 to 80 in length"),
        ("l", [], ["SendMessage"], "MissingParameter", "parameter AWSAccountIds."),
        ("l", [ACCOUNT], [], "MissingParameter", "parameter ActionName."),
        (
            "l",
            [ACCOUNT],
            ["CreateQueue"],
            "InvalidParameterValue",
            "Value SQS:CreateQueue for parameter ActionName is invalid. "
            "Reason: Only the queue owner is allowed to invoke this action.",
        ),
        (
            "l",
            [ACCOUNT],
            ["SendMessage", "SendMessageBatch"],
            "InvalidParameterValue",
            "Value SQS:SendMessageBatch for parameter ActionName is invalid. "
            "Reason: Please refer to the appropriate WSDL for a list of valid actions.",
        ),
        (
            "l",
            ["nobody"],
            ["SendMessage"],
            "InvalidParameterValue",
            "Value [nobody] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
    ],
)
async def test_what_is_refused(
    account: Account,
    url: str,
    label: str,
    accounts: list[str],
    actions: list[str],
    code: str,
    words: str,
) -> None:
    with pytest.raises(RefusedError) as raised:
        await account.execute(AddPermission(url, label, accounts, actions))
    assert raised.value.code == code
    assert words in raised.value.message
    assert await policy_of(account, url) is None


async def test_limits(account: Account, url: str) -> None:
    with pytest.raises(OverLimit) as raised:
        await account.execute(AddPermission(url, "l", [ACCOUNT], ["SendMessage"] * 8))
    assert raised.value.message == "8 Actions were found, maximum allowed is 7."
    assert raised.value.status == 403
    for number in range(20):
        await account.execute(AddPermission(url, f"l{number}", [ACCOUNT], ["SendMessage"]))
    with pytest.raises(OverLimit) as raised:
        await account.execute(AddPermission(url, "l20", [ACCOUNT], ["SendMessage"]))
    assert raised.value.message == "21 Statements were found, maximum allowed is 20."


async def test_labels_are_there_once_and_found(account: Account, url: str) -> None:
    await account.execute(AddPermission(url, "l", [ACCOUNT], ["SendMessage"]))
    with pytest.raises(RefusedError) as raised:
        await account.execute(AddPermission(url, "l", [ACCOUNT], ["ReceiveMessage"]))
    assert raised.value.message == (
        "Value l for parameter Label is invalid. Reason: Already exists."
    )
    with pytest.raises(RefusedError) as raised:
        await account.execute(RemovePermission(url, "m"))
    assert raised.value.message == (
        "Value m for parameter Label is invalid. Reason: can't find label on existing policy."
    )
    with pytest.raises(RefusedError, match="parameter Label"):
        await account.execute(RemovePermission(url, ""))
