"""`app.dependency_overrides`: other functions in the place of dependencies, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Self

from pumphouse.errors import UsageError

_Function = Callable[..., Any]


class Overrides(MutableMapping[_Function, _Function]):
    """From a dependency to what is called in its place, wherever it is asked for.

    Works like a dict, before the app runs and while it does: a change holds for the messages that
    are started after it. One that can't be called by a running handler raises `UsageError` where it
    is set, and is not kept.
    """

    def __init__(self) -> None:
        self._functions: dict[_Function, _Function] = {}
        self._changed: Callable[[], None] | None = None

    def watch(self, changed: Callable[[], None] | None) -> None:
        """Call a function after each change; it may refuse the change by raising."""
        self._changed = changed

    def __getitem__(self, dependency: _Function) -> _Function:
        return self._functions[dependency]

    def __setitem__(self, dependency: _Function, function: _Function) -> None:
        self._change({**self._functions, dependency: function})

    def __delitem__(self, dependency: _Function) -> None:
        rest = dict(self._functions)
        del rest[dependency]
        self._change(rest)

    def __ior__(self, functions: Mapping[_Function, _Function]) -> Self:
        self._change({**self._functions, **functions})
        return self

    def clear(self) -> None:
        """Take all of them away."""
        self._change({})

    def replace(self, functions: Mapping[_Function, _Function]) -> None:
        """Take all of them away and put others there."""
        self._change(dict(functions))

    def _change(self, functions: dict[_Function, _Function]) -> None:
        for each in (*functions, *functions.values()):
            if not callable(each):
                raise UsageError(f"dependency_overrides has functions, not {each!r}")
        before, self._functions = self._functions, functions
        if self._changed is not None:
            try:
                self._changed()
            except BaseException:
                self._functions = before
                self._changed()
                raise

    def __iter__(self) -> Iterator[_Function]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        names = (getattr(each, "__qualname__", repr(each)) for each in self._functions)
        return f"<Overrides of {', '.join(names) or 'nothing'}>"
