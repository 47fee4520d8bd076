"""How situations are acted out: what a situation may ask for, and who carries it out.

A situation is a generator. It yields `Call` (an action with its parameters, both as AWS spells
them) and `Wait` (seconds), and gets back the answer as AWS spells it, or a `Refusal`. It knows
nothing of who answers:

- `act_on_backend` builds operations and executes them on any `Backend`;
- `act_on_client` makes the same calls with a boto3 (botocore) SQS client, whatever protocol it has.

Both return what was answered under each label, in the shape of botocore's answers and errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumphouse.backend import Backend
from pumphouse.errors import ServiceError
from pumphouse.protocol import sns_query
from pumphouse.protocol.faults import lookup
from pumphouse.protocol.operations import SQS_OPERATIONS
from pumphouse.protocol.sns_operations import SNS_OPERATIONS

Answer = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request. What is answered is kept under `label`, reduced by `pick` where given.

    `protocol` is "json" or "query" where the situation wants one whatever it is acted out over;
    `headers` go with the request. `service` is "sqs" or "sns", and `region` another region than
    that of the others.
    """

    action: str
    parameters: Mapping[str, Any]
    label: str = ""
    pick: Callable[[Answer], Any] | None = None
    protocol: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    service: str = "sqs"
    region: str = ""


@dataclass(frozen=True)
class Wait:
    """Let time pass."""

    seconds: float


class Refusal(dict[str, Any]):
    """An error as botocore shows it in `ClientError.response`; `action` is what was refused."""

    action: str = ""

    @property
    def sentence(self) -> str:
        """The error as botocore words it."""
        error = self["Error"]
        return (
            f"An error occurred ({error['Code']}) when calling the {self.action} operation: "
            f"{error['Message']}"
        )


Play = Generator[Call | Wait, Answer, None]
Kept = dict[str, Any]


async def act_on_backend(
    play: Play,
    backend: Backend,
    wait: Callable[[float], Awaitable[None]],
    *,
    protocol: str = "json",
) -> Kept:
    """Act a situation out with operations; errors look as they do over `protocol`."""
    kept: Kept = {}
    step = _begin(play)
    while step is not None:
        if isinstance(step, Wait):
            await wait(step.seconds)
            step = _go_on(play, {})
            continue
        answer = await _execute(step, backend, step.protocol or protocol)
        _keep(kept, step, answer)
        step = _go_on(play, answer)
    return kept


def act_on_client(
    play: Play,
    clients: Mapping[str, Any],
    wait: Callable[[float], object],
    *,
    protocol: str = "json",
) -> Kept:
    """Act a situation out with botocore clients by protocol ("json", "query"), or for SNS by
    service and region ("sns", "sns eu-west-1")."""
    kept: Kept = {}
    step = _begin(play)
    while step is not None:
        if isinstance(step, Wait):
            wait(step.seconds)
            step = _go_on(play, {})
            continue
        name = step.protocol or protocol
        if step.service == "sns":
            name = f"sns {step.region}".strip()
        answer = _call(step, clients[name])
        _keep(kept, step, answer)
        step = _go_on(play, answer)
    return kept


def _begin(play: Play) -> Call | Wait | None:
    return next(play, None)


def _go_on(play: Play, answer: Answer) -> Call | Wait | None:
    try:
        return play.send(answer)
    except StopIteration:
        return None


def _call(step: Call, client: Any) -> Answer:
    from botocore.exceptions import ClientError

    def add_headers(request: Any, **_: Any) -> None:
        for name, value in step.headers.items():
            request.headers[name] = value

    event = f"before-send.{step.service}.{step.action}"
    client.meta.events.register(event, add_headers)
    try:
        answer: Answer = client._make_api_call(step.action, dict(step.parameters))
    except ClientError as error:
        return _refusal(error.response, step.action)
    finally:
        client.meta.events.unregister(event, add_headers)
    return answer


def _keep(kept: Kept, step: Call, answer: Answer) -> None:
    if step.label:
        picked = step.pick is not None and not isinstance(answer, Refusal)
        kept[step.label] = step.pick(answer) if picked and step.pick else answer
    elif isinstance(answer, Refusal):
        raise AssertionError(f"{answer.sentence}\n{step}")


async def _execute(step: Call, backend: Backend, protocol: str) -> Answer:
    parameters = dict(step.parameters)
    if step.service == "sns":
        return await _execute_sns(step, backend, parameters)
    if trace := step.headers.get("X-Amzn-Trace-Id"):
        # a request's trace header becomes the message's, which is the wire's business
        parameters["MessageSystemAttributes"] = {
            "AWSTraceHeader": {"DataType": "String", "StringValue": trace}
        }
    operation = msgspec.convert(
        parameters, SQS_OPERATIONS[step.action], builtin_types=(bytes, bytearray)
    )
    try:
        result = await backend.execute(operation)
    except ServiceError as error:
        return _refusal(_as_botocore(error, protocol), step.action)
    answer: Answer = msgspec.to_builtins(result, builtin_types=(bytes, bytearray))
    answer["ResponseMetadata"] = {"HTTPStatusCode": 200}
    return answer


async def _execute_sns(step: Call, backend: Any, parameters: dict[str, Any]) -> Answer:
    if trace := step.headers.get("X-Amzn-Trace-Id"):
        parameters["TraceHeader"] = trace
    kind = SNS_OPERATIONS[step.action]
    if missing := [
        each.encode_name
        for each in msgspec.structs.fields(kind)
        if each.required and each.encode_name not in parameters
    ]:
        # what a request leaves out is the codec's to refuse, as it does on the wire
        error = sns_query.missing_parameter(missing[0])
        return _refusal(_as_botocore(error, "query", "sns"), step.action)
    operation = msgspec.convert(parameters, kind, builtin_types=(bytes, bytearray))
    if step.region:
        backend = backend.within(region=step.region)
    try:
        result = await backend.execute(operation)
    except ServiceError as error:
        return _refusal(_as_botocore(error, "query", "sns"), step.action)
    answer: Answer = {
        each.encode_name: msgspec.to_builtins(value, builtin_types=(bytes, bytearray))
        for each in msgspec.structs.fields(result)
        if (value := getattr(result, each.name)) is not None
    }
    answer["ResponseMetadata"] = {"HTTPStatusCode": 200}
    return answer


def _as_botocore(error: ServiceError, protocol: str, service: str = "sqs") -> Answer:
    row = lookup(error.code, service)
    assert row is not None, f"{error.code} is not in the table of faults"
    message = error.message
    if protocol == "query" and row.query_message and message == row.message:
        message = row.query_message
    shown = {
        "Code": error.query_code,
        "Message": message,
        "Type": "Sender" if error.sender_fault else "Receiver",
    }
    if protocol == "json":
        shown["QueryErrorCode"] = row.json_type.partition("#")[2]
    return {"Error": shown, "ResponseMetadata": {"HTTPStatusCode": error.status}}


def _refusal(response: Mapping[str, Any], action: str) -> Refusal:
    refusal = Refusal(response)
    refusal.action = action
    return refusal
