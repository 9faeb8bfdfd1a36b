"""Per-API request, latency and error counters: plain numbers, which the metrics read.

Counting is done while requests are served, so it is limited to additions; only every 16th request is timed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from txbroker.wire.schema import Struct, field_types

# One of this many requests of each API is timed, beginning with the first one; the times of the last ones are kept.
SAMPLED_ONE_IN = 16
SAMPLES_KEPT = 1024

Clock = Callable[[], float]
Errors = Counter[int]  # by error code


class RequestTimes:
    """The durations of the requests of one API that were timed last, in seconds."""

    __slots__ = ("clock", "latest")

    def __init__(self, clock: Clock | None) -> None:
        """`clock` returns monotonic seconds; without one nothing is timed."""
        self.clock = clock
        self.latest: deque[float] = deque(maxlen=SAMPLES_KEPT)

    def begin(self) -> float:
        """The time now; 0.0 when nothing is timed."""
        return self.clock() if self.clock is not None else 0.0

    def end(self, begun: float) -> None:
        """The response to a request that began at `begun` is made."""
        if self.clock is not None:
            self.latest.append(self.clock() - begun)


class ErrorTally:
    """Counts the error codes in responses of one class: all fields `error_code` of its schema."""

    def __init__(self, response: type[Struct], errors: Errors) -> None:
        self._errors = errors
        self._tally = _tally_of(response)

    def __call__(self, response: Any) -> None:
        """Count the errors of this response."""
        self._tally(response, self._errors)


_Tally = Callable[[Any, Errors], None]


@cache  # of a class of the schema: each broker of a process needs the same ones
def _tally_of(cls: type[Struct]) -> _Tally:
    has_code = "error_code" in cls.__fields__
    nested = [(name, _tally_of(inner)) for name, kind in field_types(cls).items() if (inner := _struct_in_list(kind)) and _has_code(inner)]

    def tally(struct: Any, errors: Errors) -> None:
        if has_code and struct.error_code:
            errors[struct.error_code] += 1
        for name, tally_inner in nested:
            for inner in getattr(struct, name) or ():
                tally_inner(inner, errors)

    return tally


def _has_code(cls: type[Struct]) -> bool:
    if "error_code" in cls.__fields__:
        return True
    return any((inner := _struct_in_list(kind)) is not None and _has_code(inner) for kind in field_types(cls).values())


def _struct_in_list(kind: Any) -> type[Struct] | None:
    """The struct that a field of this type is a list of."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _struct_in_list(get_args(kind)[0])
    if origin in (Union, UnionType):
        return next((found for part in get_args(kind) if (found := _struct_in_list(part)) is not None), None)
    if origin is list:
        (inner,) = get_args(kind)
        return inner if isinstance(inner, type) and issubclass(inner, Struct) else None
    return None
