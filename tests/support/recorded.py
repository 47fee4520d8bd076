"""What real AWS answered, and whether an answer is the same but for what varies.

The recordings have placeholders for what varies: `<uuid:1>`, `<receipt-handle:2>`, `timestamp`,
`111111111111` for the account. A placeholder stands for one value throughout a situation, and two
placeholders of a kind for two values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.acting import Refusal

_PLACEHOLDER = re.compile(r"<([a-z0-9-]+)(?::(\d+))?>|111111111111")
_KINDS = {
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "receipt-handle": r"\S+",
    "sender-id": r"\S+",
    "sequence-number": r"\d{20}",
    "task-handle": r"\S+",
    "resource": r"[A-Za-z0-9_.-]+",
    "partition": r"aws[a-z-]*",
    "region": r"[a-z]{2}(?:-[a-z]+)+-\d",
    "queue-name": r"[A-Za-z0-9_.-]+",
    "md5-hash": r"[0-9a-f]{32}",
    "account": r"\d{12}",
    "cert-domain": r"https?://[^/]+",
    "endpoint": r"\S+",
    "host": r"\S+",
    "signature": r"[A-Za-z0-9+/]+=*",
    "signing-cert-file": r"[0-9a-f]{32}\.pem",
    "subscribe-domain": r"https?://[^/]+",
    "token": r"[0-9a-f]{64,}",
    "topic": r"[A-Za-z0-9_.-]+",
    "unsubscribe-domain": r"https?://[^/]+",
    "region-primary": r"us-east-1",
    "region-secondary": r"eu-west-1",
}
_ANY_TIME = frozenset({"md5-hash", "signature"})
"""Kinds whose values differ from place to place."""


class Recording(NamedTuple):
    """One recorded situation: `name[variant]`, over which protocol, and its answers by label."""

    name: str
    variant: str
    protocol: str
    answers: dict[str, Any]

    @property
    def title(self) -> str:
        return f"{self.name}[{self.variant}]" if self.variant else self.name


def recordings(folder: Path) -> Iterator[Recording]:
    """Every recorded SQS situation."""
    return _recordings(folder, "sqs.json", "sqs-move-tasks.json")


def sns_recordings(folder: Path) -> Iterator[Recording]:
    """Every recorded SNS situation."""
    return _recordings(folder, "sns.json", "sns-filter-policy.json")


def _recordings(folder: Path, *files: str) -> Iterator[Recording]:
    for file in files:
        for title, entry in json.loads((folder / file).read_text()).items():
            yield _recording(title.rpartition(" / ")[2], entry["answers"])


def _recording(title: str, answers: dict[str, Any]) -> Recording:
    name, _, inside = title.removesuffix("]").partition("[")
    for prefix, protocol in (("sqs_query", "query"), ("sqs", "json")):
        if inside == prefix:
            return Recording(name, "", protocol, answers)
        if inside.startswith(prefix + "-"):
            return Recording(name, inside[len(prefix) + 1 :] or "empty", protocol, answers)
    return Recording(name, inside, "json", answers)


class Matcher:
    """Compares answers with recorded ones, remembering what each placeholder stands for.

    Over the query protocol an error has one code: the other, which some recordings show for it all
    the same, is not compared then.
    """

    def __init__(self, protocol: str = "json") -> None:
        self._values: dict[tuple[str, str], str] = {}
        self._ignored = frozenset({"QueryErrorCode"} if protocol == "query" else ())

    def differences(self, recorded: Any, answer: Any, where: str = "") -> list[str]:
        """What is not the same, one line each; empty where all is."""
        if recorded == "timestamp":
            return [] if _is_timestamp(answer) else [f"{where}: no timestamp: {answer!r}"]
        if recorded == "date" and isinstance(answer, str):
            good = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", answer)
            return [] if good else [f"{where}: no date: {answer!r}"]
        if isinstance(recorded, str) and isinstance(answer, bytes):
            answer = str(answer)  # the recordings show bytes as Python writes them
        if isinstance(recorded, str) and isinstance(answer, Refusal):
            answer = answer.sentence
        if isinstance(recorded, dict) and isinstance(answer, str):
            answer = json.loads(answer)  # the recordings show JSON texts as what they say
        if isinstance(recorded, dict) and isinstance(answer, dict):
            return self._dicts(recorded, answer, where)
        if isinstance(recorded, list) and isinstance(answer, list):
            found = [
                line
                for number, (one, other) in enumerate(zip(recorded, answer, strict=False))
                for line in self.differences(one, other, f"{where}[{number}]")
            ]
            if len(recorded) != len(answer):
                found.append(f"{where}: {len(answer)} items instead of {len(recorded)}")
            return found
        if isinstance(recorded, str) and isinstance(answer, str):
            fault = self._texts(recorded, answer)
            return [f"{where}: {fault}"] if fault else []
        if recorded == answer and type(recorded) is type(answer):
            return []
        return [f"{where}: {answer!r} instead of {recorded!r}"]

    def _dicts(self, recorded: dict[str, Any], answer: dict[str, Any], where: str) -> list[str]:
        found = []
        recorded, answer = self._compared(recorded), self._compared(answer)
        for key in recorded.keys() | answer.keys():
            if key not in answer:
                found.append(f"{where}.{key}: missing, should be {recorded[key]!r}")
            elif key not in recorded:
                found.append(f"{where}.{key}: {answer[key]!r}, which AWS does not answer")
            else:
                found.extend(self.differences(recorded[key], answer[key], f"{where}.{key}"))
        return sorted(found)

    def _compared(self, value: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value[key]
            for key in value
            if key not in self._ignored and not _is_framing(key, value[key])
        }

    def _texts(self, recorded: str, answer: str) -> str:
        parts: list[str] = []
        groups: list[tuple[str, str]] = []
        end = 0
        for found in _PLACEHOLDER.finditer(recorded):
            kind, number = (found[1], found[2] or "") if found[1] else ("account", "")
            parts.append(re.escape(recorded[end : found.start()]) + f"({_KINDS[kind]})")
            groups.append((kind, number))
            end = found.end()
        pattern = "".join(parts) + re.escape(recorded[end:])
        match = re.fullmatch(pattern, answer, re.DOTALL)
        if match is None:
            return f"{answer!r} instead of {recorded!r}"
        for placeholder, value in zip(groups, match.groups(), strict=True):
            kind, number = placeholder
            if kind in _ANY_TIME:
                continue
            if self._values.setdefault(placeholder, value) != value:
                return f"<{kind}:{number}> is {value!r} here and was {self._values[placeholder]!r}"
            if number and any(
                other == value and known != placeholder and known[0] == kind
                for known, other in self._values.items()
            ):
                return f"<{kind}:{number}> is {value!r}, and so is another"
        return ""


def _is_framing(key: str, value: Any) -> bool:
    """What is there or not with the client, not with the service: headers, an empty detail."""
    return (
        key
        in (
            "HTTPHeaders",
            "RequestId",
            "RetryAttempts",
            "HostId",
            "message",
            "_normalized",
            "MaxAttemptsReached",
        )
        or (key == "Detail" and value is None)
        or (key == "x-amzn-query-error")
    )


def _is_timestamp(value: Any) -> bool:
    if isinstance(value, dict):  # a message attribute named `timestamp` was replaced as a whole
        value = value.get("StringValue")
    if isinstance(value, int | float):
        return value > 1_000_000_000
    return isinstance(value, str) and re.fullmatch(r"\d{10,13}", value) is not None
