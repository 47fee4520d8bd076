"""Delivery policies: how often and how far apart an HTTP delivery is tried again.

The phases are those of "Amazon SNS message delivery retries" in the developer guide: retries at
once, retries the least delay apart, retries whose delay grows, retries the greatest delay apart.
A topic's policy is for all its subscriptions, one of a subscription's own goes over it. Policies
are kept as texts, and what is in force is worked out from both when it is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

MAX_RETRIES = 100
MAX_DELAY_SECONDS = 3600

_DEFAULT: dict[str, Any] = {
    "minDelayTarget": 20,
    "maxDelayTarget": 20,
    "numRetries": 3,
    "numMaxDelayRetries": 0,
    "numNoDelayRetries": 0,
    "numMinDelayRetries": 0,
    "backoffFunction": "linear",
}
_FUNCTIONS = ("linear", "arithmetic", "geometric", "exponential")
CONTENT_TYPE = "text/plain; charset=UTF-8"
_REQUEST: dict[str, Any] = {"headerContentType": CONTENT_TYPE}
_TYPE = re.compile(
    r"(?:text/(?:css|csv|html|plain|xml)"
    r"|application/(?:atom\+xml|json|octet-stream|soap\+xml|x-www-form-urlencoded|xml))"
    r"(?: *; *charset=[a-z0-9._-]{1,40})?"
)


class BadDeliveryPolicyError(Exception):
    """A delivery policy that the service refuses, and why."""


class RetryPlan(NamedTuple):
    """The retries of an HTTP delivery."""

    retries: int
    at_once: int
    least: int
    greatest: int
    least_seconds: int
    greatest_seconds: int
    function: str
    content_type: str

    @classmethod
    def of(cls, rules: dict[str, Any], request: dict[str, Any]) -> RetryPlan:
        """The plan of a whole retry policy and a whole request policy."""
        return cls(
            rules["numRetries"],
            rules["numNoDelayRetries"],
            rules["numMinDelayRetries"],
            rules["numMaxDelayRetries"],
            rules["minDelayTarget"],
            rules["maxDelayTarget"],
            rules["backoffFunction"],
            request["headerContentType"],
        )

    def delays(self) -> Iterator[float]:
        """The seconds to wait before each retry."""
        growing = self.retries - self.at_once - self.least - self.greatest
        for _ in range(self.at_once):
            yield 0.0
        for _ in range(self.least):
            yield float(self.least_seconds)
        for number in range(growing):
            yield self._between((number + 1) / growing)
        for _ in range(self.greatest):
            yield float(self.greatest_seconds)

    def _between(self, share: float) -> float:
        """The delay at a share of the growing phase, by the policy's function."""
        low, high = float(self.least_seconds), float(self.greatest_seconds)
        if self.function == "geometric" and low > 0:
            return low * float((high / low) ** share)
        if self.function == "exponential":
            return low + (high - low) * float((2**share - 1) ** 2)
        if self.function == "arithmetic":
            return low + (high - low) * share * share
        return low + (high - low) * share


# --- what is in force ---------------------------------------------------------------------------


def effective_policy(text: str) -> dict[str, Any]:
    """A topic's delivery policy with the defaults that it leaves."""
    http = _part(_object(text) if text else {}, "http")
    return {
        "http": {
            "defaultHealthyRetryPolicy": _DEFAULT | _given(http, "defaultHealthyRetryPolicy"),
            "disableSubscriptionOverrides": bool(http.get("disableSubscriptionOverrides")),
            "defaultRequestPolicy": _REQUEST | _given(http, "defaultRequestPolicy"),
        }
    }


def subscription_policy(topic: str, text: str) -> dict[str, Any]:
    """What is in force for a subscription: its own policy over its topic's, which may forbid it."""
    http = effective_policy(topic)["http"]
    own = _object(text) if text and not http["disableSubscriptionOverrides"] else {}
    return {
        "healthyRetryPolicy": http["defaultHealthyRetryPolicy"] | _given(own, "healthyRetryPolicy"),
        "sicklyRetryPolicy": None,
        "throttlePolicy": own.get("throttlePolicy"),
        "requestPolicy": http["defaultRequestPolicy"] | _given(own, "requestPolicy"),
        "guaranteed": False,
    }


@lru_cache(maxsize=256)
def plan_of(topic: str, text: str) -> RetryPlan:
    """How deliveries to a subscription are tried, by its topic's delivery policy and its own."""
    policy = subscription_policy(topic, text)
    return RetryPlan.of(policy["healthyRetryPolicy"], policy["requestPolicy"])


def _given(policy: dict[str, Any], name: str) -> dict[str, Any]:
    """What a part of a policy says; null is how a policy that was shown says nothing."""
    return {key: value for key, value in _part(policy, name).items() if value is not None}


# --- what can be set ----------------------------------------------------------------------------


def check_topic_policy(text: str) -> None:
    """Raise `BadDeliveryPolicyError` for a topic's policy that can't be used."""
    policy = _object(text)
    _check_members(policy, ("http",))
    http = _part(policy, "http")
    _check_members(http, _TOPIC_MEMBERS)
    for name in ("defaultHealthyRetryPolicy", "defaultSicklyRetryPolicy"):
        _check_retry(http, f"http.{name}", _DEFAULT)
    _check_throttle(http, "http.defaultThrottlePolicy")
    _check_request(http, "http.defaultRequestPolicy")
    if not isinstance(http.get("disableSubscriptionOverrides") or False, bool):
        raise BadDeliveryPolicyError("http.disableSubscriptionOverrides must be true or false")


def check_subscription_policy(topic: str, text: str) -> None:
    """Raise `BadDeliveryPolicyError` for a subscription's policy that can't be used."""
    policy = _object(text)
    _check_members(policy, _SUBSCRIPTION_MEMBERS)
    base = effective_policy(topic)["http"]["defaultHealthyRetryPolicy"]
    for name in ("healthyRetryPolicy", "sicklyRetryPolicy"):
        _check_retry(policy, name, base)
    _check_throttle(policy, "throttlePolicy")
    _check_request(policy, "requestPolicy")
    if not isinstance(policy.get("guaranteed") or False, bool):
        raise BadDeliveryPolicyError("guaranteed must be true or false")


_TOPIC_MEMBERS = (
    "defaultHealthyRetryPolicy",
    "defaultSicklyRetryPolicy",
    "defaultThrottlePolicy",
    "defaultRequestPolicy",
    "disableSubscriptionOverrides",
)
_SUBSCRIPTION_MEMBERS = (
    "healthyRetryPolicy",
    "sicklyRetryPolicy",
    "throttlePolicy",
    "requestPolicy",
    "guaranteed",
)


def _object(text: str) -> dict[str, Any]:
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise BadDeliveryPolicyError("failed to parse JSON") from None
    if not isinstance(policy, dict):
        raise BadDeliveryPolicyError("must be a JSON object")
    return policy


def _part(policy: dict[str, Any], path: str) -> dict[str, Any]:
    """A member that is an object; one that is left out, or null, is empty."""
    part = policy.get(path.rpartition(".")[2])
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise BadDeliveryPolicyError(f"{path} must be a JSON object")
    return part


def _check_members(policy: dict[str, Any], known: Collection[str]) -> None:
    if unknown := sorted(policy.keys() - set(known)):
        raise BadDeliveryPolicyError(f"Unexpected JSON member: {unknown[0]}")


def _check_number(path: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadDeliveryPolicyError(f"{path} must be an integer")
    if value < low:
        raise BadDeliveryPolicyError(f"{path} must be greater than or equal to {low}")
    if value > high:
        raise BadDeliveryPolicyError(f"{path} must be less than or equal to {high}")


def _check_retry(policy: dict[str, Any], path: str, base: dict[str, Any]) -> None:
    _check_members(_part(policy, path), _DEFAULT)
    rules = _given(policy, path)
    if not rules:
        return
    for name, value in rules.items():
        if name == "backoffFunction":
            if value not in _FUNCTIONS:
                raise BadDeliveryPolicyError(
                    f"{path}.backoffFunction the value [{value}] is not a valid backoff function"
                )
        elif name.endswith("Target"):
            _check_number(f"{path}.{name}", value, 1, MAX_DELAY_SECONDS)
        else:
            _check_number(f"{path}.{name}", value, 0, MAX_RETRIES)
    full = base | rules
    if full["minDelayTarget"] > full["maxDelayTarget"]:
        raise BadDeliveryPolicyError(
            f"{path}.maxDelayTarget must be greater than or equal to minDelayTarget"
        )
    phases = ("numMinDelayRetries", "numNoDelayRetries", "numMaxDelayRetries")
    if sum(full[phase] for phase in phases) > full["numRetries"]:
        raise BadDeliveryPolicyError(
            f"{path}.numRetries must be greater than or equal to total of numMinDelayRetries, "
            "numNoDelayRetries and numMaxDelayRetries"
        )
    if sum(RetryPlan.of(full, _REQUEST).delays()) > MAX_DELAY_SECONDS:
        raise BadDeliveryPolicyError(f"{path}: the retries take more than {MAX_DELAY_SECONDS} s")


def _check_throttle(policy: dict[str, Any], path: str) -> None:
    _check_members(_part(policy, path), ("maxReceivesPerSecond",))
    for name, value in _given(policy, path).items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadDeliveryPolicyError(f"{path}.{name} must be >= 1")


def _check_request(policy: dict[str, Any], path: str) -> None:
    _check_members(_part(policy, path), _REQUEST)
    for name, value in _given(policy, path).items():
        if not isinstance(value, str) or _TYPE.fullmatch(value.lower()) is None:
            raise BadDeliveryPolicyError(f"{path}.{name} is no content type that is supported")
