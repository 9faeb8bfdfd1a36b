"""Dataclasses whose methods are generated when they are first used, not when their module is imported.

`dataclass` compiles up to six functions for a class, which takes 0.4 to 0.7 ms. A broker imports more than a hundred such classes to
start, makes no object of most of them before the first request of their kind, and compares or prints objects of a few only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["lazy_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:

    def lazy_dataclass(
        *, slots: bool, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
    ) -> Callable[[type], type]:
        """The decorator `dataclass`, with these of its options; `slots` must be True, and no base may be a dataclass.

        `__init__` is generated for the first object, or when `dataclasses.fields` reads the class; other methods for their first call.
        """
        if not slots:
            raise TypeError("a lazy dataclass has slots")
        return lambda declared: _slotted(declared, frozen=frozen, eq=eq, repr=repr, kw_only=kw_only)


def _slotted(declared: type, *, frozen: bool, eq: bool, repr: bool, kw_only: bool) -> type:
    """A class like the declared one, but with slots."""
    own = {name: value for name, value in vars(declared).items() if name not in ("__dict__", "__weakref__")}
    own["__qualname__"] = declared.__qualname__

    def generated(initial: bool) -> dict[str, Any]:
        """`__init__` and what belongs to it, or the other methods; those of a class that is not in use, as it has no slots."""
        model = type(declared)(declared.__name__, declared.__bases__, dict(own))
        dataclass(init=initial, frozen=frozen, eq=eq and not initial, repr=repr and not initial, kw_only=kw_only)(model)
        return {name: value for name, value in vars(model).items() if name not in own}

    first = ["__init__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"]
    others = ["__eq__"] * eq + ["__repr__"] * repr + ["__hash__"] * (eq and frozen)
    fields = [name for name, kind in own.get("__annotations__", {}).items() if not str(kind).startswith("ClassVar")]
    slotted: dict[str, Any] = {name: value for name, value in own.items() if name not in fields}
    slotted["__slots__"] = tuple(fields)
    if eq and not frozen:
        slotted.setdefault("__hash__", None)
    for names, is_initial in ((first, True), (others, False)):
        slotted |= {name: _OnFirstUse(names, partial(generated, is_initial)) for name in names if name not in own}
    if frozen:  # the generated ones accept objects of the model only
        slotted |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        slotted.setdefault("__setstate__", _set_state)
    return type(declared)(declared.__name__, declared.__bases__, slotted)


class _OnFirstUse:
    """An attribute of a class that is generated, together with others. Several threads may do so: what they set is the same."""

    def __init__(self, together: Sequence[str], generated: Callable[[], Mapping[str, Any]]) -> None:
        self._together = together
        self._generated = generated

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        values = self._generated()
        for name in self._together:
            if isinstance(vars(self._owner).get(name), _OnFirstUse):
                setattr(self._owner, name, values[name])
        value = values[self._name]
        return value.__get__(instance, owner) if isinstance(value, FunctionType) else value


def _set_state(self: object, state: tuple[None, Mapping[str, object]]) -> None:
    """For `copy` and `pickle`, which would set the slots of a copy by `setattr`."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
