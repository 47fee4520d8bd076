"""Delivery policies: how often and how far apart an HTTP delivery is tried again.

The phases are those of "Amazon SNS message delivery retries" in the developer guide: retries at
once, retries the least delay apart, retries whose delay grows, retries the greatest delay apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    content_type: str = CONTENT_TYPE

    @classmethod
    def of(cls, http: dict[str, Any]) -> RetryPlan:
        """The plan of the `http` part of an effective delivery policy."""
        rules = http["defaultHealthyRetryPolicy"]
        return cls(
            rules["numRetries"],
            rules["numNoDelayRetries"],
            rules["numMinDelayRetries"],
            rules["numMaxDelayRetries"],
            rules["minDelayTarget"],
            rules["maxDelayTarget"],
            rules["backoffFunction"],
            http.get("defaultRequestPolicy", {}).get("headerContentType", CONTENT_TYPE),
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


def effective_policy(text: str) -> dict[str, Any]:
    """A topic's delivery policy with the defaults that it leaves."""
    http = (json.loads(text) if text else {}).get("http") or {}
    request = http.get("defaultRequestPolicy") or {}
    return {
        "http": {
            "defaultHealthyRetryPolicy": _DEFAULT | (http.get("defaultHealthyRetryPolicy") or {}),
            "disableSubscriptionOverrides": http.get("disableSubscriptionOverrides", False),
            "defaultRequestPolicy": {
                "headerContentType": request.get("headerContentType", CONTENT_TYPE)
            },
        }
    }


def parse_topic_policy(text: str) -> None:
    """Raise `BadDeliveryPolicyError` for a topic's policy that can't be used."""
    policy = _object(text)
    http = policy.get("http", {})
    if not isinstance(http, dict):
        raise BadDeliveryPolicyError("http must be an object")
    _check_retry(http.get("defaultHealthyRetryPolicy"))


def subscription_plan(topic: str, text: str) -> RetryPlan:
    """The plan of a subscription with a delivery policy of its own over its topic's.

    Raises `BadDeliveryPolicyError` for a policy that can't be used.
    """
    http = effective_policy(topic)["http"]
    if text and not http["disableSubscriptionOverrides"]:
        policy = _object(text)
        if unknown := policy.keys() - {
            "healthyRetryPolicy",
            "sicklyRetryPolicy",
            "throttlePolicy",
            "guaranteed",
            "requestPolicy",
        }:
            raise BadDeliveryPolicyError(f"Unexpected JSON member: {min(unknown)}")
        _check_retry(policy.get("healthyRetryPolicy"))
        http["defaultHealthyRetryPolicy"] |= policy.get("healthyRetryPolicy") or {}
        http["defaultRequestPolicy"] |= policy.get("requestPolicy") or {}
    return RetryPlan.of(http)


def _object(text: str) -> dict[str, Any]:
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise BadDeliveryPolicyError("failed to parse JSON") from None
    if not isinstance(policy, dict):
        raise BadDeliveryPolicyError("must be a JSON object")
    return policy


def _check_retry(rules: Any) -> None:
    if rules is None:
        return
    if not isinstance(rules, dict):
        raise BadDeliveryPolicyError("a retry policy must be an object")
    for name, value in rules.items():
        if name == "backoffFunction":
            if value not in _FUNCTIONS:
                raise BadDeliveryPolicyError(
                    f"backoffFunction must be one of {', '.join(_FUNCTIONS)}"
                )
        elif name not in _DEFAULT:
            raise BadDeliveryPolicyError(f"Unexpected JSON member: {name}")
        elif not isinstance(value, int) or isinstance(value, bool):
            raise BadDeliveryPolicyError(f"{name} must be a whole number")
        elif not 0 <= value <= (MAX_DELAY_SECONDS if name.endswith("Target") else MAX_RETRIES):
            raise BadDeliveryPolicyError(f"{name} is out of range")
    full = _DEFAULT | rules
    if full["minDelayTarget"] > full["maxDelayTarget"]:
        raise BadDeliveryPolicyError("minDelayTarget must not be more than maxDelayTarget")
    if (
        full["numNoDelayRetries"] + full["numMinDelayRetries"] + full["numMaxDelayRetries"]
        > (full["numRetries"])
    ):
        raise BadDeliveryPolicyError("numRetries must not be less than the retries of the phases")
    if sum(RetryPlan.of({"defaultHealthyRetryPolicy": full}).delays()) > MAX_DELAY_SECONDS:
        raise BadDeliveryPolicyError(f"the retries take more than {MAX_DELAY_SECONDS} seconds")
