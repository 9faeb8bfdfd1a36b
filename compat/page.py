"""TABLE.md: a table for each kind of client and each broker, read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compat.matrix import CELLS, CLIENTS, FEATURES, NO, TOOLS, YES, Row, worse

OURS, KAFKA = "txbroker", "Apache Kafka 4.3.1"
_TITLES = {CLIENTS: "Clients", TOOLS: "Kafka's own tools"}
_HEADING = re.compile(r"## (.+) on (.+)")
_REASON = re.compile(r"- (.+?), ([\w-]+): (.+)")

Half = dict[str, list[Row]]  # kind -> rows, of one broker
Page = dict[str, Half]  # broker -> its half

_INTRODUCTION = """\
# Which client can what

Made by `python -m compat --write`, against txbroker and, with `--broker kafka`, against Apache Kafka with the same drivers.
[README.md](README.md) says what each feature is. `yes`: it works. `-`: the client, or the tool's command line, has no such thing.
`client`: the client itself is wrong, on any broker. `no`: it does not work. Whatever is not `yes` has its reason under the table."""


def to_markdown(page: Page) -> str:
    """The page, with a sentence that says where txbroker is behind Kafka."""
    ours, kafkas = page.get(OURS, {}), page.get(KAFKA, {})
    behind = [f"{row.client} {feature} ({row.cells[feature]}, there {other})"
              for kind in FEATURES for row, feature, other in worse(ours.get(kind, []), kafkas.get(kind, []))]
    verdict = f"Worse on txbroker than on Kafka: {', '.join(behind)}." if behind else "No cell is worse on txbroker than on Kafka."
    parts = [_INTRODUCTION, verdict]
    for kind, title in _TITLES.items():
        for broker in (OURS, KAFKA):
            if rows := page.get(broker, {}).get(kind):
                parts += [f"## {title} on {broker}", _table(rows, FEATURES[kind])]
                if reasons := _reasons(rows, FEATURES[kind]):
                    parts.append(reasons)
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], features: Sequence[str]) -> str:
    lines = [f"| client | version | {' | '.join(features)} |", "|---|---|" + "---|" * len(features)]
    lines += [f"| {row.client} | {row.version} | {' | '.join(row.cells.get(feature, NO) for feature in features)} |" for row in rows]
    return "\n".join(lines)


def _reasons(rows: Sequence[Row], features: Sequence[str]) -> str:
    return "\n".join(f"- {row.client}, {feature}: {row.details[feature]}" for row in rows for feature in features
                     if row.cells.get(feature) != YES and feature in row.details)


def from_markdown(text: str) -> Page:
    """What a page says. ValueError for a table that is not of this form, for instance after a merge."""
    kinds = {title: kind for kind, title in _TITLES.items()}
    page: Page = {}
    rows: list[Row] = []
    features: list[str] = []
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line):
            rows, features = page.setdefault(heading[2], {}).setdefault(kinds[heading[1]], []), []
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if features:
                rows.append(_row(cells, features))
            else:
                features = cells[2:]
        elif reason := _REASON.fullmatch(line):
            for row in rows:
                if row.client == reason[1]:
                    row.details[reason[2]] = reason[3]
    return page


def _row(cells: Sequence[str], features: Sequence[str]) -> Row:
    if len(cells) != len(features) + 2 or not set(cells[2:]) <= set(CELLS):
        raise ValueError(f"a row of TABLE.md that is none: {' | '.join(cells)}")
    return Row(cells[0], cells[1], dict(zip(features, cells[2:], strict=True)))


def replaced(half: Half, rows: Mapping[str, Sequence[Row]], order: Sequence[str]) -> Half:
    """The half with the cells of `rows` in it; what a row was not asked for stays, unless it is of another version of its client.

    Clients that are not in `order` any more go.
    """
    made: Half = {}
    for kind, features in FEATURES.items():
        by_client = {row.client: row for row in half.get(kind, [])}
        for row in rows.get(kind, []):
            by_client[row.client] = _over(by_client.get(row.client), row, features)
        made[kind] = [by_client[client] for client in order if client in by_client]
    return made


def _over(old: Row | None, new: Row, features: Sequence[str]) -> Row:
    if old is None or old.version != new.version:
        return new
    made = Row(new.client, new.version)
    for feature in features:
        source = new if feature in new.cells else old
        made.set(feature, source.cells.get(feature, NO), source.details.get(feature, ""))
    return made
