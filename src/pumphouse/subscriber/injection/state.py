"""`app.state`: the values that a lifespan puts there, found by their type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pumphouse.errors import ConfigError, UsageError

T = TypeVar("T")
_Key = tuple[Any, str]


class AppState:
    """A bag of values, one for each type; where one type has several, each has a name.

    Handlers take them as `Annotated[Db, State()]`. What is put there while the app runs, by its
    lifespan above all, is gone after the run; what was put before it stays.
    """

    def __init__(self) -> None:
        self._values: dict[_Key, Any] = {}

    def put(self, value: T, kind: Any = None, *, name: str = "") -> T:
        """Keep a value under its type, or under `kind` (a protocol or a base class, say); returns
        it. It takes the place of the one that was there, for running handlers as well.

        Raises `UsageError` for a `kind` that can't be one, and for a value that is not of it.
        """
        kind = type(value) if kind is None else kind
        try:
            fits = not isinstance(kind, type) or isinstance(value, kind)
            hash(kind)
        except TypeError:  # a protocol or a generic type, that tells nothing of its values
            fits = _hashable(kind)
        if not fits:
            raise UsageError(f"{type(value).__name__} can't be put into the state as {kind!r}")
        self._values[kind, name] = value
        return value

    def get(self, kind: type[T], name: str = "") -> T:
        """The value of a type, as handlers get it. Raises `ConfigError` where there is none."""
        value: T = self.getter(kind, name)()
        return value

    def getter(self, kind: Any, name: str = "") -> Callable[[], Any]:
        """A function that gives the value of a type: the one put under that very type, otherwise
        the only one put under a subclass. Raises `ConfigError` where there is none."""
        key = self._key(kind, name)
        values = self._values
        return lambda: values[key]

    def snapshot(self) -> Callable[[], None]:
        """A function that puts everything back as it is now."""
        kept = dict(self._values)

        def restore() -> None:
            self._values.clear()
            self._values.update(kept)

        return restore

    def _key(self, kind: Any, name: str) -> _Key:
        if _hashable(kind) and (kind, name) in self._values:
            return kind, name
        near = [key for key in self._values if key[1] == name and _is_subclass(key[0], kind)]
        if len(near) == 1:
            return near[0]
        wanted = f"{getattr(kind, '__name__', kind)}{f' named {name!r}' if name else ''}"
        if near:
            found = ", ".join(getattr(key[0], "__name__", str(key[0])) for key in near)
            raise ConfigError(
                f"app.state has several values that are a {wanted} ({found}); put the one that is "
                f"meant under that type: app.state.put(value, {getattr(kind, '__name__', kind)})"
            )
        raise ConfigError(
            f"app.state has no {wanted}; put one there in the lifespan: app.state.put(value)"
        )

    def __contains__(self, kind: object) -> bool:
        return _hashable(kind) and (kind, "") in self._values

    def __repr__(self) -> str:
        kinds = sorted(getattr(kind, "__name__", str(kind)) for kind, _ in self._values)
        return f"<AppState: {', '.join(kinds) or 'empty'}>"


def _hashable(kind: object) -> bool:
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _is_subclass(kind: Any, of: Any) -> bool:
    try:
        return isinstance(kind, type) and issubclass(kind, of)
    except TypeError:
        return False
