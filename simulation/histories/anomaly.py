"""What the checker reports."""

from __future__ import annotations

from typing import NamedTuple


class Anomaly(NamedTuple):
    """`kind` is one of the table in the package's docstring; `partition` is "topic-number"; `what` is a sentence for people."""

    kind: str
    partition: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.partition}: {self.what}"
