"""The table client x feature: what drivers print, TABLE.md, and which cells became worse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FEATURES = ("topics", "none", "gzip", "snappy", "lz4", "zstd", "acks", "idempotence", "group", "rebalance", "offsets", "delete_records",
            "configs", "groups")
YES, ABSENT, NO = "yes", "-", "no"
_RANK = {YES: 2, ABSENT: 1, NO: 0}


@dataclass
class Row:
    """What one client can. A feature without a cell was not tried."""

    client: str
    version: str = "?"
    cells: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)  # why a cell does not say yes

    def hear(self, line: str) -> str | None:
        """A line of a driver; the feature that it was about. ValueError for what is not of a driver's form."""
        said = json.loads(line)
        if "client" in said:
            self.client, self.version = str(said["client"]), str(said["version"])
            return None
        feature, ok = str(said["feature"]), said["ok"]
        self.cells[feature] = ABSENT if ok is None else YES if ok else NO
        if said.get("detail"):
            self.details[feature] = str(said["detail"])
        return feature

    def lack(self, features: Sequence[str], reason: str) -> None:
        """Features that a driver should have said something about and did not."""
        for feature in features:
            if feature not in self.cells:
                self.cells[feature] = NO
                self.details[feature] = reason


def worse(rows: Sequence[Row], before: Mapping[str, Mapping[str, str]]) -> list[tuple[Row, str]]:
    """The cells that are worse than they were; a client or feature that is new must not fail."""
    found = []
    for row in rows:
        for feature, cell in row.cells.items():
            if _RANK[cell] < _RANK.get(before.get(row.client, {}).get(feature, ABSENT), 1):
                found.append((row, feature))
    return found


def to_markdown(rows: Sequence[Row], broker: str) -> str:
    """TABLE.md."""
    lines = [
        "# Which client can what", "",
        f"Made by `python -m compat --write` against {broker}. [README.md](README.md) says what each feature is.",
        "A cell with `-`: the client, or the tool's command line, has no such thing.", "",
        "| client | version | " + " | ".join(FEATURES) + " |",
        "|---|---|" + "---|" * len(FEATURES),
    ]
    for row in rows:
        lines.append(f"| {row.client} | {row.version} | " + " | ".join(row.cells.get(feature, NO) for feature in FEATURES) + " |")
    reasons = [f"- {row.client}, {feature}: {row.details[feature]}" for row in rows for feature in FEATURES
               if row.cells.get(feature) != YES and feature in row.details]
    return "\n".join([*lines, "", *reasons]).rstrip() + "\n"


def from_markdown(text: str) -> dict[str, dict[str, str]]:
    """The cells of TABLE.md, by client and feature."""
    found: dict[str, dict[str, str]] = {}
    heading: list[str] = []
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heading:
            heading = cells
        else:
            found[cells[0]] = dict(zip(heading[2:], cells[2:], strict=True))
    return found
