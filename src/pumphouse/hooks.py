"""What can be observed: events as small frozen values, and a place to listen to them.

A listener is a plain callable that takes one event. A listener that fails is logged and never
harms what it observes. Which module emits an event is written at the event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E")

_log = logging.getLogger("pumphouse.hooks")


class Hooks:
    """Listeners by event type: `hooks.on(RequestFinished, print)`."""

    __slots__ = ("_listeners", "listening")

    def __init__(self) -> None:
        self._listeners: dict[type, list[Callable[[Any], object]]] = {}
        self.listening = False  # whether anyone has ever listened to anything

    def on(self, event: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call `listener` with every event of this type; returns a function that stops it."""
        listeners = self._listeners.setdefault(event, [])
        listeners.append(listener)
        self.listening = True
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # the same listener may have been given twice
                stopped = True
                listeners.remove(listener)

        return stop

    def wanted(self, event: type) -> bool:
        """Whether anyone listens: ask before building a costly event."""
        return bool(self._listeners.get(event))

    def emit(self, event: object) -> None:
        """Tell every listener of this event's type."""
        for listener in tuple(self._listeners.get(type(event), ())):
            try:
                listener(event)
            except Exception:
                _log.exception("a listener of %s failed", type(event).__name__)
