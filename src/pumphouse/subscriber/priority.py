"""Priority among queues: a lower one starts nothing while a higher one has something.

A queue has something while messages of it wait for a handler, and while it is not known to be
empty: after messages came, its next receive does not wait, so that it is soon known again. That is
what keeps the order through long polls: a message that arrives in a higher queue stops the lower
ones at once, and an open poll on a higher, empty queue does not hold up a lower one. A queue whose
receives fail is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Member(Protocol):
    def has_something(self) -> bool:
        """Whether messages wait, or may be there."""
        ...

    def look_again(self) -> None:
        """What may be started has changed."""


class PriorityGroup:
    """The subscriptions of an app that have a `priority`; lower numbers go first."""

    def __init__(self) -> None:
        self._members: list[tuple[int, Member]] = []

    def join(self, priority: int, member: Member) -> Callable[[], bool]:
        """Take a member in; returns the function that says whether it may start something now."""
        self._members.append((priority, member))

        def may_start() -> bool:
            return not any(
                other.has_something() for rank, other in self._members if rank < priority
            )

        return may_start

    def changed(self, member: Member) -> None:
        """A member has become empty, or has failed: those below it may go on."""
        rank = next(rank for rank, other in self._members if other is member)
        for other_rank, other in self._members:
            if other_rank > rank:
                other.look_again()
