"""Dataclasses that generate their methods on first use are like others."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import ClassVar

import pytest

from txbroker import lazy_dataclass as module
from txbroker.lazy_dataclass import lazy_dataclass


class Outer:
    @lazy_dataclass(frozen=True, slots=True)
    class Nested:
        x: int
        names: list[str]

    @lazy_dataclass(slots=True)
    class Open:
        x: int


def frozen() -> type:
    @lazy_dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 3
        names: list[str] = field(default_factory=list)
        origin: ClassVar[int] = 0

        @property
        def sum(self) -> int:
            return self.x + self.y

    return Point


def test_an_object_is_that_of_a_dataclass() -> None:
    cls = frozen()
    point = cls(1, names=["a"])
    assert (point.x, point.y, point.names, point.sum, cls.origin) == (1, 3, ["a"], 4, 0)
    assert repr(point).endswith("Point(x=1, y=3, names=['a'])")
    assert point == cls(x=1, y=3, names=["a"]) != cls(2)
    assert replace(point, x=2) == cls(2, 3, ["a"])
    match point:
        case cls(x, y, _):
            assert (x, y) == (1, 3)
    assert (cls.__doc__, cls.__slots__, cls.__name__, cls.__module__) == ("A point.", ("x", "y", "names"), "Point", __name__)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        cls()


def test_fields_are_known_before_the_first_object() -> None:
    cls = frozen()
    assert dataclasses.is_dataclass(cls)
    assert [each.name for each in fields(frozen())] == ["x", "y", "names"]


def test_a_frozen_object_cannot_be_changed() -> None:
    point = frozen()(1)
    for name in ("x", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(point, name, 2)
        with pytest.raises(FrozenInstanceError):
            delattr(point, name)
    assert hash(frozen()) is not None


def test_an_object_is_copied_and_pickled() -> None:
    nested = Outer.Nested(1, ["a"])
    for each in (nested, Outer.Open(2)):
        for copied in (copy.copy(each), copy.deepcopy(each), *(pickle.loads(pickle.dumps(each, protocol)) for protocol in (2, 4, 5))):
            assert (copied, type(copied)) == (each, type(each))
    assert copy.copy(nested).names is nested.names is not copy.deepcopy(nested).names


def test_a_nested_class_has_its_whole_name() -> None:
    assert Outer.Nested.__qualname__ == "Outer.Nested"
    assert repr(Outer.Nested(1, [])) == "Outer.Nested(x=1, names=[])"
    with pytest.raises(TypeError, match=r"^Outer\.Nested\.__init__\(\) missing"):
        Outer.Nested(1)  # type: ignore[call-arg]


def test_an_object_that_can_be_changed_has_slots_only_and_is_prepared() -> None:
    @lazy_dataclass(slots=True, eq=False, kw_only=True)
    class Counter:
        count: int

        def __post_init__(self) -> None:
            self.count += 1

    counter = Counter(count=1)
    counter.count += 1
    assert counter.count == 3
    assert counter != Counter(count=2)
    assert len({counter, Counter(count=2)}) == 2
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Counter(1)  # type: ignore[misc]


def test_nothing_is_generated_before_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[type] = []

    def dataclass(**options: bool) -> object:
        return lambda cls: made.append(cls) or dataclasses.dataclass(**options)(cls)

    monkeypatch.setattr(module, "dataclass", dataclass)
    cls = frozen()
    assert made == []
    points = cls(1), cls(2)
    assert len(made) == 1
    assert points[0] != points[1]
    assert repr(points[0]) != repr(points[1])
    assert len(made) == 2


def test_a_class_without_further_methods_may_have_a_subclass() -> None:
    @lazy_dataclass(slots=True, repr=False)
    class Base:
        x: int

        def __repr__(self) -> str:
            return f"<{self.x}>"

    class Derived(Base):
        def __init__(self) -> None:
            super().__init__(1)

    assert repr(Derived()) == "<1>"
    assert Base(1) == Base(1) != Base(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Base(1))


def test_several_threads_may_make_the_first_object() -> None:
    for _ in range(50):
        cls = frozen()
        found: list[object] = []
        barrier = threading.Barrier(4)

        def make(cls: type = cls, barrier: threading.Barrier = barrier, found: list[object] = found) -> None:
            barrier.wait()
            found.append(cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [cls(1)] * 4
