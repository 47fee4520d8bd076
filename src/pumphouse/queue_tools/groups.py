"""The groups of a FIFO queue that is being moved by hand, and what of them stays: `Groups`.

SQS hands out nothing of a group while messages of it are held. So what stays of a group is given
back from time to time, to be received once more together with what is behind it, until that brings
nothing new. Ten messages that stay fill a receive: what is behind them can't be seen. This is the
account of it, without IO; receiving and giving back are `move.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection

from pumphouse.errors import PumphouseError
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES


class Groups:
    """`looks_behind`: what stays of a group may be received again and again."""

    def __init__(self, *, looks_behind: bool) -> None:
        self.busy: set[str] = set()
        """Those that a worker is dealing with."""
        self.broken: dict[str, PumphouseError] = {}
        """Those of which one was not moved, and why: nothing behind it is."""
        self._looks_behind = looks_behind
        self._stays: dict[str, list[str]] = {}
        self._parked: dict[str, None] = {}

    @property
    def parked(self) -> bool:
        """Whether there is a group that may have more behind what stays of it."""
        return bool(self._parked)

    @property
    def hides(self) -> bool:
        """Whether there may be messages that were not seen, behind others of their group."""
        return any(
            len(ids) >= MAX_BATCH_ENTRIES or group in self.broken or not self._looks_behind
            for group, ids in self._stays.items()
        )

    def stays(self, group: str, message_id: str) -> None:
        """A message of a group stays where it is."""
        self._stays.setdefault(group, []).append(message_id)

    def came(self, groups: Collection[str], with_new: Collection[str], *, full: bool) -> None:
        """A receive has been dealt with that brought messages of `groups`, new ones of `with_new`;
        `full`: there was no room for more. Where a group may have more, it is parked."""
        if not self._looks_behind:
            return
        for group in sorted(groups):
            may_have_more = full or group in with_new
            room = 0 < len(self._stays.get(group, ())) < MAX_BATCH_ENTRIES
            if may_have_more and room and group not in self.broken:
                self._parked[group] = None

    def next(self) -> list[str]:
        """The ids of what stays of the group that was parked first, which is parked no longer."""
        if not self._parked:
            return []
        group = next(iter(self._parked))
        del self._parked[group]
        return list(self._stays[group])
