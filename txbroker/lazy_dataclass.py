"""Dataclasses whose methods are generated when they are first used, not when their module is imported.

`dataclass` compiles up to eight functions for a class, which takes 0.4 to 0.7 ms. A broker imports more than a hundred such classes to
start, and makes no object of most of them before the first request of their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["lazy_dataclass"]

_lock = Lock()

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:

    def lazy_dataclass(*, slots: bool, frozen: bool = False, **options: bool) -> Callable[[type], type]:
        """The decorator `dataclass`, with its options; `slots` must be True, and no base may be a dataclass.

        Without methods until then: the class is complete before its first object is made, and before `dataclasses.fields` reads it.
        """
        if not slots:
            raise TypeError("a lazy dataclass has slots")
        return lambda declared: _slotted(declared, dataclass(frozen=frozen, **options), frozen)


def _slotted(declared: type, complete: Callable[[type], type], frozen: bool) -> type:
    """A class like the declared one, but with slots. `complete` generates methods for the declared one, which are then taken over."""
    own = dict(vars(declared))
    fields = [name for name, kind in own.get("__annotations__", {}).items() if not str(kind).startswith("ClassVar")]
    names = set(own)

    def generate() -> None:
        with _lock:
            if not isinstance(vars(made)["__init__"], _OnFirstUse):
                return
            complete(declared)
            generated = vars(declared).keys() - names - {"__setattr__", "__delattr__"}
            for name in sorted(generated, key="__init__".__eq__):  # last: another thread may use the class then
                setattr(made, name, vars(declared)[name])

    for name in {*fields, "__dict__", "__weakref__"} & names:
        del own[name]
    own |= {"__slots__": tuple(fields), **{name: _OnFirstUse(name, generate) for name in ("__init__", "__dataclass_fields__")}}
    if frozen:  # the generated ones accept the declared class only
        own |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    made = type(declared)(declared.__name__, declared.__bases__, own)
    return made


class _OnFirstUse:
    """An attribute of a class that `generate` sets."""

    def __init__(self, name: str, generate: Callable[[], None]) -> None:
        self._name = name
        self._generate = generate

    def __get__(self, instance: object, owner: type) -> Any:
        self._generate()
        return getattr(owner if instance is None else instance, self._name)


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
