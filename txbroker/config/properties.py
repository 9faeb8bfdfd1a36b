"""Java properties files, `--override key=value` arguments, and where each value was written.

The format is that of `java.util.Properties`; `${env:NAME}` in a value becomes the environment variable, as with Kafka's
EnvVarConfigProvider. Reading the file itself is the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Origin(NamedTuple):
    """Where a value was written: a file and its line, or a named place without lines (`--override`)."""

    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True, slots=True)
class Property:
    """The text of one key's value and where it was written."""

    text: str
    origin: Origin


# Later sources win: {**parse_properties(...), **parse_overrides(...)}; the environment (KAFKA_...) would be one more such mapping.
Properties = Mapping[str, Property]


def parse_properties(data: bytes, place: str, environment: Mapping[str, str]) -> dict[str, Property]:
    """The properties in the bytes of a file called `place`; ConfigError (with file and line) on what cannot be read."""
    raise NotImplementedError


def parse_overrides(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Property]:
    """The properties of `--override key=value` arguments; ConfigError when one has no `=`."""
    raise NotImplementedError
