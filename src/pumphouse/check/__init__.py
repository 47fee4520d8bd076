"""Pre-flight: what is wrong with a service's queues and topics before it starts.

`check` looks up what AWS says about them (`facts.py`), lays it beside what the app declares
(`case.py`), and asks the rules, which are pure functions: `queue_rules.py`, `dead_letter_rules.py`,
`time_rules.py`, `publishing_rules.py`, `topic_rules.py`. It executes `Get…` and `List…` operations
and no others. What a service needs to be permitted is `permissions.py`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumphouse.backend import Backend
from pumphouse.check.case import cases_of
from pumphouse.check.dead_letter_rules import dead_letter_findings
from pumphouse.check.facts import Deliveries, Look
from pumphouse.check.findings import KINDS, Finding, Severity
from pumphouse.check.publishing_rules import publishing_findings, targets_of
from pumphouse.check.queue_rules import option_findings, queue_findings
from pumphouse.check.time_rules import time_findings
from pumphouse.check.topic_rules import asks_sns, topic_findings

if TYPE_CHECKING:
    from pumphouse.app import App

__all__ = ["KINDS", "Finding", "Severity", "check"]

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


async def check(app: App, backend: Backend) -> list[Finding]:
    """Everything that is found wrong with an app's queues and topics, by queue, worst first.

    Nothing is changed: only `Get…` and `List…` operations are executed. A call that is not
    permitted is a finding. Raises what else the backend raises: `NetworkError`, `ConfigError` for
    credentials or a region that are missing or refused.
    """
    look = Look(backend)
    cases = await cases_of(look, app.subscriptions)
    targets = targets_of(app)
    findings: list[Finding] = []
    arns = {case.facts.arn for case in cases if case.facts.arn}
    deliveries = await look.deliveries(arns, needed=asks_sns(cases)) if arns else Deliveries()
    for case in cases:
        findings += queue_findings(case)
        findings += dead_letter_findings(case)
        findings += time_findings(case, app.drain_seconds)
        findings += topic_findings(case, deliveries)
    findings += await publishing_findings(look, targets, cases)
    findings += option_findings(cases)
    places = {
        name: place for place, name in enumerate(dict.fromkeys(each.queue for each in findings))
    }
    return sorted(
        dict.fromkeys(findings),
        key=lambda each: (places[each.queue], _ORDER[each.severity], each.code),
    )
