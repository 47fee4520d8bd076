"""What may be wrong between a queue and the topics that send to it (PH5..)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumphouse.check.access import lets_topic_send
from pumphouse.check.case import Case
from pumphouse.check.facts import Deliveries
from pumphouse.check.findings import Finding, found
from pumphouse.check.queue_rules import refused, unseen


def asks_sns(cases: Sequence[Case]) -> bool:
    """Whether a queue is declared to be read from topics."""
    return any(case.queue.sns != "raw" for case in cases)


def topic_findings(case: Case, deliveries: Deliveries) -> Iterator[Finding]:
    """The subscriptions that bring messages to the queue of a case."""
    name, mode, facts = case.name, case.queue.sns, case.facts
    if not facts.arn:
        return
    if deliveries.refused:
        if mode == "auto":  # the start looks them up as well
            yield refused(name, deliveries.refused, "*")
        elif mode == "envelope":
            yield unseen(name, deliveries.refused, "the topics that send to it")
        return
    mine = [each for each in deliveries.found if each.queue_arn == facts.arn]
    if not mine and mode != "raw" and not deliveries.cut:
        yield found(
            "PH504",
            name,
            f"sns={mode!r}, and no topic is subscribed to it",
            "subscribe it, with subscribe_queue_to_topic for example, or leave sns= out",
        )
    policy = facts.document("Policy")
    for each in mine:
        if each.raw is not None and each.raw != (mode == "raw") and mode != "auto":
            yield found(
                "PH501",
                name,
                f"topic {each.topic} delivers {'raw' if each.raw else 'in envelopes'}, and the "
                f"queue is read with sns={mode!r}",
                f"set RawMessageDelivery of the subscription to {str(mode == 'raw').lower()}, or "
                f"declare sns={'raw' if each.raw else 'envelope'!r}",
            )
        if not lets_topic_send(policy, each.topic_arn):
            yield found(
                "PH502",
                name,
                f"its access policy does not let topic {each.topic} send, so nothing arrives",
                f"call subscribe_queue_to_topic(backend, {case.queue.name!r}, …), which writes the "
                "statement that SNS needs",
            )
    if mine and facts.key == "alias/aws/sqs":
        yield found(
            "PH503",
            name,
            f"it is encrypted with {facts.key}, which topic {mine[0].topic} can't be permitted to "
            "use",
            "encrypt the queue with SQS's own encryption, or with a key of yours whose policy lets "
            "sns.amazonaws.com use kms:GenerateDataKey and kms:Decrypt",
        )
