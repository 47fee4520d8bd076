"""Faults on purpose: what an account does wrong when a test asks it to.

A fault is set for an action and used up by the operations that meet it. One operation meets one
fault, the first that was set for its action and is not used up. An account without any pays nothing
for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pumphouse.errors import NetworkError, OutcomeUnknownError, UsageError
from pumphouse.protocol.faults import fault, from_answer, lookup
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    Operation,
    ReceiveMessageResult,
    Result,
    SendMessageBatchResult,
    SendMessageResult,
)

if TYPE_CHECKING:
    from pumphouse.clock import Clock

Action = str | type[Operation[Any]]
CarryOut = Callable[[Operation[Any]], Awaitable[Result]]
"""Carries out an operation as if there were no fault."""

_Behaviour = Callable[[Operation[Any], CarryOut], Awaitable[Result]]


_THROTTLED = {
    "sqs": ("RequestThrottled", "Request is throttled."),
    "sns": ("Throttling", "Rate exceeded"),
}


class _Rule:
    """One fault that was set; `left` is how often it still strikes, None for always. `kind` is the
    operation it was set for, None for every one of the action's name."""

    __slots__ = ("behaviour", "kind", "left")

    def __init__(
        self, behaviour: _Behaviour, times: int | None, kind: type[Operation[Any]] | None
    ) -> None:
        if times is not None and times < 1:
            raise UsageError(f"times is {times}; a fault strikes at least once, or always (None)")
        self.behaviour = behaviour
        self.kind = kind
        self.left = times


class Faults:
    """The faults of an account. `action` is an action's name or its operation class everywhere;
    `times` is how many operations meet the fault, None for all from now on."""

    def __init__(
        self, clock: Clock, actions: Collection[str], expire: Callable[[str], bool]
    ) -> None:
        self._clock = clock
        self._actions = actions
        self._expire = expire
        self._rules: dict[str, deque[_Rule]] = {}

    def throttle(self, action: Action, times: int | None = 1) -> None:
        """Answer that there are too many requests; nothing is carried out."""

        async def throttled(operation: Operation[Any], carry_out: CarryOut) -> Result:
            code, message = _THROTTLED[operation.service]
            raise fault(code, message, operation.service)

        self._set(action, throttled, times)

    def refuse(self, action: Action, code: str, message: str = "", times: int | None = 1) -> None:
        """Answer with an AWS error code; nothing is carried out."""

        async def refused(operation: Operation[Any], carry_out: CarryOut) -> Result:
            service = operation.service
            if lookup(code, service):
                raise fault(code, message, service)
            raise from_answer(code, message, status=400, service=service)

        self._set(action, refused, times)

    def fail_entries(
        self,
        action: Action,
        which: Iterable[int] | Callable[[Any], bool],
        code: str = "InternalError",
        message: str = "",
        sender_fault: bool = False,
        times: int | None = 1,
    ) -> None:
        """Let some entries of a batch fail and carry out the others.

        `which` are the positions of entries, or a function that says it of an entry.
        """
        name = self._name(action)
        if not name.endswith("Batch"):
            raise UsageError(f"{name} has no entries; the actions that have end in Batch")
        positions = None if callable(which) else frozenset(which)

        def fails(position: int, entry: object) -> bool:
            return position in positions if positions is not None else which(entry)  # type: ignore[operator]

        async def failing(operation: Any, carry_out: CarryOut) -> Result:
            bad: list[Any] = []
            good: list[Any] = []
            field = "entries" if operation.service == "sqs" else "publish_batch_request_entries"
            for position, entry in enumerate(getattr(operation, field)):
                (bad if fails(position, entry) else good).append(entry)
            failed = [
                BatchResultErrorEntry(entry.id, sender_fault, code, message or None)
                for entry in bad
            ]
            if not good:
                return operation.result([], failed)  # type: ignore[no-any-return]
            result: Any = await carry_out(replace(operation, **{field: good}))
            return replace(result, failed=result.failed + failed)  # type: ignore[no-any-return]

        self._set(action, failing, times)

    def lose_request(self, action: Action, times: int | None = 1) -> None:
        """Carry out nothing, and fail as when there is no connection (`NetworkError`)."""

        async def unreachable(operation: Operation[Any], carry_out: CarryOut) -> Result:
            raise NetworkError(f"{operation.action} did not reach the account, as was asked for")

        self._set(action, unreachable, times)

    def lose_answer(self, action: Action, times: int | None = 1) -> None:
        """Carry out the operation and lose its answer (`OutcomeUnknownError`)."""

        async def lost(operation: Operation[Any], carry_out: CarryOut) -> Result:
            await carry_out(operation)
            raise OutcomeUnknownError(f"the answer to {operation.action} is lost, as was asked for")

        self._set(action, lost, times)

    def delay(
        self, action: Action, seconds: float, times: int | None = 1, *, answer: bool = False
    ) -> None:
        """Be slow: carry out the operation `seconds` later, or with `answer` carry it out at once
        and answer `seconds` later."""

        async def slow(operation: Operation[Any], carry_out: CarryOut) -> Result:
            if not answer:
                await self._clock.sleep(seconds)
                return await carry_out(operation)
            result = await carry_out(operation)
            await self._clock.sleep(seconds)
            return result

        self._set(action, slow, times)

    def wrong_md5(self, action: Action, times: int | None = 1) -> None:
        """Carry out a send or a receive and answer with MD5s of other bodies."""
        name = self._name(action)
        if name not in ("SendMessage", "SendMessageBatch", "ReceiveMessage"):
            raise UsageError(f"{name} answers with no MD5 of a body")

        async def wrong(operation: Operation[Any], carry_out: CarryOut) -> Result:
            return _with_wrong_md5(await carry_out(operation))

        self._set(action, wrong, times)

    def expire_handle(self, receipt_handle: str) -> None:
        """End the lease of a receipt handle now: its message is visible again, and the handle is
        refused as expired from now on, on a standard queue too."""
        if not self._expire(receipt_handle):
            raise UsageError("no message is leased under this receipt handle")

    def clear(self) -> None:
        """Take back all faults that are not used up."""
        self._rules.clear()

    def __bool__(self) -> bool:
        """Whether any fault is set and not used up."""
        return bool(self._rules)

    def meet(self, operation: Operation[Any]) -> _Behaviour | None:
        """Use up a fault for this operation and return what it does; None where there is none."""
        rules = self._rules.get(operation.action)
        if rules is None:
            return None
        rule = next((each for each in rules if each.kind in (None, type(operation))), None)
        if rule is None:
            return None
        if rule.left is not None:
            rule.left -= 1
            if not rule.left:
                rules.remove(rule)
                if not rules:
                    del self._rules[operation.action]
        return rule.behaviour

    def _set(self, action: Action, behaviour: _Behaviour, times: int | None) -> None:
        rule = _Rule(behaviour, times, None if isinstance(action, str) else action)
        self._rules.setdefault(self._name(action), deque()).append(rule)

    def _name(self, action: Action) -> str:
        name = action if isinstance(action, str) else action.action
        if name not in self._actions:
            raise UsageError(f"{name!r} is no action of this account")
        return name

    def __repr__(self) -> str:
        parts = [
            f"{action} ({'always' if rule.left is None else rule.left})"
            for action, rules in self._rules.items()
            for rule in rules
        ]
        return f"<Faults: {', '.join(parts) or 'none'}>"


def _with_wrong_md5(result: Result) -> Result:
    if isinstance(result, SendMessageResult):
        return replace(result, md5_of_message_body=_other(result.md5_of_message_body))
    if isinstance(result, SendMessageBatchResult):
        return replace(
            result,
            successful=[
                replace(entry, md5_of_message_body=_other(entry.md5_of_message_body))
                for entry in result.successful
            ],
        )
    if isinstance(result, ReceiveMessageResult):
        return replace(
            result,
            messages=[
                replace(message, md5_of_body=_other(message.md5_of_body))
                for message in result.messages
            ],
        )
    return result


def _other(md5: str) -> str:
    return md5[::-1] if md5 != md5[::-1] else "0" * len(md5)
