"""Answers that are given again and again: encoded once, and kept for as long as what they tell holds.

`Metadata` is the case: many clients ask for the same topics, all of them at once when a leader has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from txbroker.wire.schema import Response


class KeptAnswer:
    """A handler's answer to all requests of one version that ask for the same. Its response must hold no file regions."""

    __slots__ = ("_body", "_response")

    def __init__(self, response: Response) -> None:
        self._response: Response | None = response
        self._body = b""

    def body(self, encode: Callable[[Any], list[Any]]) -> bytes:
        """The answer as `encode`, the same one at each call, makes it."""
        if self._response is not None:
            self._body = b"".join(encode(self._response))
            self._response = None
        return self._body


class MadeAnswer:
    """A handler's answer whose body is encoded already, in the version that was asked; file regions may be among the parts."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


class KeptAnswers:
    """Answers by what was asked for, all of one `version` of what they tell; at most `weight_max` together."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._version = -1
        self._answers: dict[Hashable, KeptAnswer] = {}

    def get(self, version: int, key: Hashable) -> KeptAnswer | None:
        """The answer, if it was made from this version."""
        return self._answers.get(key) if version == self._version else None

    def keep(self, version: int, key: Hashable, response: Response, weight: int) -> KeptAnswer:
        """Keep an answer, unless it alone weighs too much; older ones make room, all at once."""
        answer = KeptAnswer(response)
        if weight > self._weight_max:
            return answer
        if version != self._version or self._weight + weight > self._weight_max:
            self._answers.clear()
            self._version = version
            self._weight = 0
        self._answers[key] = answer
        self._weight += weight
        return answer
