"""What a test calls: arguments are checked by their annotations, and errors are raised where the test has called.

A traceback then ends in the test, and the last line says what to do there.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from txbroker.client.client_errors import ClientError
from txbroker.testing.errors import EditError, KitError, UnmatchedRule

_Class = TypeVar("_Class")
_SPECIAL = ("__init__", "__enter__", "__exit__")
_CALLED: Mapping[object, str] = {
    Any: "anything", str: "text", bytes: "bytes", int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None",
    timedelta: "a timedelta, such as timedelta(days=8)",
}  # fmt: skip


def checked(cls: type[_Class]) -> type[_Class]:
    """A decorator of a class, for its public methods and properties. Their annotations must be names of the module, not of its tests."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(member, types.FunctionType):
            setattr(cls, name, _checked(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(_checked(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_checked(member.fget), doc=member.__doc__))
    return cls


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # by pytest
        try:
            _check(function, args, kwargs)
            return function(*args, **kwargs)
        except (KitError, ClientError, EditError, UnmatchedRule) as error:
            raise error.with_traceback(None)  # noqa: B904  # it is the same error, and keeps its cause

    return call


def _check(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    signature, hints = _form(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return  # the call itself fails with it
    for name, value in _values(signature, given):
        if name in hints and not _fits(value, hints[name]):
            raise KitError(f"{_name(function)}: {name} is {value!r:.200}; it must be {_called(hints[name])}")


@functools.cache
def _form(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    return inspect.signature(function), get_type_hints(function)


def _values(signature: inspect.Signature, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, each) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((name, each) for each in value.values())
        else:
            yield name, value


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__qualname__.removesuffix('.__init__').rpartition('.')[2]}()"


def _fits(value: object, hint: Any) -> bool:
    """Whether a value has the type of an annotation, and its elements, too; what is no simple type fits."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if hint is Any:
        return True
    if origin is Literal:
        return isinstance(value, str)  # the method itself lists the possible ones
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(origin, type):
        return not isinstance(hint, type) or getattr(hint, "_is_protocol", False) or isinstance(value, hint)
    if not isinstance(value, origin) or isinstance(value, str | bytes):
        return False
    if isinstance(value, Mapping):
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    if isinstance(value, list | tuple) and len(inner) == 1:
        return all(_fits(each, inner[0]) for each in value)
    return True


def _called(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_called(each) for each in inner)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if isinstance(origin, type):
        if issubclass(origin, Callable):  # type: ignore[arg-type]
            return "a function"
        if issubclass(origin, Mapping):
            return f"a mapping of {_called(inner[0])} to {_called(inner[1])}"
        return f"a list of {_called(inner[0])}"
    return _CALLED.get(hint) or ("anything" if hint is object else f"a {getattr(hint, '__name__', hint)}")
