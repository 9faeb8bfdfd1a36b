"""The tables of clients and features: results of drivers, and the comparison of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CLIENTS, TOOLS = "clients", "tools"  # the kinds of clients, each with its own table
FEATURES: Mapping[str, tuple[str, ...]] = {
    CLIENTS: (
        "topics", "none", "gzip", "snappy", "lz4", "zstd", "acks", "idempotence", "group", "eager", "cooperative", "static", "offsets",
        "delete_records", "configs", "groups", "reset", "topic_ids", "long_poll", "large", "reconnect", "commit", "abort",
        "read_committed", "txn_offsets", "fencing",
    ),
    TOOLS: (
        "topics", "configs", "consumer-groups", "console-producer", "console-consumer", "producer-perf-test", "consumer-perf-test",
        "verifiable-producer", "verifiable-consumer", "get-offsets", "delete-records", "log-dirs", "dump-log", "broker-api-versions",
    ),
}  # fmt: skip
YES, FAULT, ABSENT, NO = "yes", "client", "-", "no"
CELLS = (YES, FAULT, ABSENT, NO)
_RANK = {YES: 2, FAULT: 1, ABSENT: 1, NO: 0}
_DETAIL_CHARACTERS = 400


@dataclass
class Row:
    """The row of one client. A feature without a cell was not tried."""

    client: str
    version: str = "?"
    cells: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)  # the reasons of cells other than yes

    def hear(self, said: Mapping[str, Any]) -> str | None:
        """Add a line of a driver; the feature of this line. KeyError for a malformed line."""
        if "client" in said:
            self.version = str(said["version"])
            return None
        feature, ok, fault = str(said["feature"]), said["ok"], said.get("fault")
        if fault and ok is None:
            self.set(feature, FAULT, str(fault))
        else:
            self.set(feature, ABSENT if ok is None else YES if ok else NO, str(said.get("detail") or ""))
        return feature

    def lack(self, features: Sequence[str], reason: str) -> None:
        """Mark features for which a driver printed no result."""
        for feature in features:
            if feature not in self.cells:
                self.set(feature, NO, reason)

    def set(self, feature: str, cell: str, reason: str) -> None:
        """Set one cell; the reason is shortened to one line."""
        self.cells[feature] = cell
        self.details.pop(feature, None)
        if reason := " ".join(reason.split()):
            self.details[feature] = reason if len(reason) <= _DETAIL_CHARACTERS else reason[:_DETAIL_CHARACTERS] + "..."


def worse(rows: Iterable[Row], than: Iterable[Row]) -> list[tuple[Row, str, str]]:
    """The cells of `rows` that are worse than the same cells in `others`, with the other's value. New cells must not be `no`."""
    others = {row.client: row.cells for row in than}
    found = []
    for row in rows:
        for feature, cell in row.cells.items():
            other = others.get(row.client, {}).get(feature, ABSENT)
            if _RANK[cell] < _RANK[other]:
                found.append((row, feature, other))
    return found
