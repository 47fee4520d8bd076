"""The marks that say where a parameter's value comes from: `Depends`, `Header`, `State`.

Declarations only. What they mean is worked out in `graph.py`; headers are read in `headers.py`.
A mark stands in `Annotated[T, mark]`, or is the parameter's default; the functions return `Any` so
that type checkers take them as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumphouse.errors import ConfigError, UsageError
from pumphouse.protocol.attributes import attribute_name_fault

if TYPE_CHECKING:
    from pumphouse.app import App


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""In place of a default that was not given; None is one that can be."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """The mark that `Depends` makes; `call` is None where the parameter's type is called."""

    call: Callable[..., Any] | None
    use_cache: bool = True


@dataclass(frozen=True, slots=True)
class HeaderField:
    """The mark that `Header` makes; `name` is None where the parameter's name is the header's."""

    name: str | None
    default: Any = MISSING


class Injected:
    """The base of marks whose value the app has, once it has started.

    A class may carry such a mark itself, as `__pumphouse_mark__`: then parameters of its type need
    no other.
    """

    __slots__ = ()

    def fault(self, kind: Any) -> str | None:
        """What is wrong with the mark on a parameter of this type, in words; None if nothing is."""
        return None

    def provider(self, kind: Any, app: App) -> Callable[[], Any]:
        """A function that gives the value; asked for once for each run, after the lifespans.

        Raises `ConfigError` where the app has no such value.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StateValue(Injected):
    """The mark that `State` makes."""

    name: str = ""

    def provider(self, kind: Any, app: App) -> Callable[[], Any]:
        return app.state.getter(kind, self.name)


class TheApp(Injected):
    """The mark of the app's own type."""

    __slots__ = ()

    def provider(self, kind: Any, app: App) -> Callable[[], Any]:
        if not isinstance(app, kind):
            raise ConfigError(f"the app is of type {type(app).__name__}, not {kind.__name__}")
        return lambda: app


def Depends(call: Callable[..., Any] | None = None, *, use_cache: bool = True) -> Any:  # noqa: N802
    """A parameter's value is what `call` returns or yields.

    `call` is a function, async or not, a class, or a generator that yields once: what stands behind
    its `yield` is its clean-up, and runs when the handler has returned, raised or been cancelled.
    Its own parameters are filled as a handler's are; the payload is given to a parameter of the
    payload's type. It is called once for each message (for each batch), whoever asks for it, or for
    each parameter with `use_cache=False`. Without `call` the parameter's type is called.

    `Annotated[Db, Depends(connect)]`, or `db: Db = Depends(connect)`. Raises `UsageError` for what
    can't be called.
    """
    if call is not None and not callable(call):
        raise UsageError(f"Depends takes a function or a class, not {call!r}")
    return Dependency(call, use_cache)


def Header(name: str | None = None, *, default: Any = MISSING) -> Any:  # noqa: N802
    """A parameter's value is a header (message attribute) of the message.

    Without a name it is the parameter's, with `-` for `_`. It is read as the annotation says:
    `str`, `bytes`, `int`, `float`, `bool`, an enum, a `Literal`, `UUID`, `Decimal`, or a date or
    time. A message without the header is undecodable, unless there is a default (the parameter's
    own, or `default`) or the type allows None. In a batch it is a list, one for each message.

    Raises `UsageError` for a name that SQS takes for no message attribute.
    """
    if name is not None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"Header takes the name of a header, not {name!r}")
        if fault := attribute_name_fault(name):
            raise UsageError(f"no message can have a header {name!r}, as its name {fault}")
    return HeaderField(name, default)


def State(name: str = "") -> Any:  # noqa: N802
    """A parameter's value is the one of its type that was put into `app.state`, under that name."""
    if not isinstance(name, str):
        raise UsageError(f"State takes the name under which a value was put, not {name!r}")
    return StateValue(name)


MARKS = (Dependency, HeaderField, Injected)
UNCALLED: dict[Any, str] = {Depends: "Depends", Header: "Header", State: "State"}
