"""The outcome of a compaction on request, from the status of each partition before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from txbroker.cli.results import Row
from txbroker.log.cleaner.cleanable import Why
from txbroker.names import amount

NAMED_MAX = 5
# Reasons that are printed even if a pass ran: more could be compacted, but not by another request now.
_KEPT_FROM_REST = (Why.LAG.value, Why.UNSTABLE.value)
_EXPIRED_LATER = "; tombstones older than delete.retention.ms are removed by the next pass, after more has been written"


def outcome(before: Mapping[int, Row], after: Sequence[Row]) -> list[Row]:
    """An object for each partition. `compacted`: whether a pass over it ended meanwhile; then the numbers of records before and after it.

    `before` has the status by partition, `after` in their order. `why_not_now`: why no more is compacted.
    """
    rows: list[Row] = []
    for row in after:
        ran = row["last"] is not None and row["last_ms"] != before.get(row["partition"], {}).get("last_ms")
        counts = {name: row["last"][name] if ran else None for name in ("records_before", "records_after")}
        rows.append({"partition": row["partition"], "compacted": ran, **counts, "why": row["why"], "why_not_now": row["why_not_now"]})
    return rows


def sentences(topic: str, rows: Sequence[Row]) -> list[str]:
    """The same as sentences: the number of records, and the reasons where nothing was compacted."""
    ran = [row for row in rows if row["compacted"]]
    lines = [f"No partition of topic {topic} was compacted."]
    if ran:
        read, left = (sum(row[name] for row in ran) for name in ("records_before", "records_after"))
        lines = [f"Topic {topic} is compacted: {left:,} of {amount(read, 'record')} remain."]
    printed = [row for row in rows if row["why_not_now"] and (not row["compacted"] or row["why"] in _KEPT_FROM_REST)]
    for reason, found in groupby(sorted(printed, key=_reason), _reason):
        numbers = [row["partition"] for row in found]
        named = ", ".join(f"{topic}-{number}" for number in numbers[:NAMED_MAX])
        more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
        lines.append(f"{named}{more}: {reason}.")
    return lines


def _reason(row: Row) -> str:
    expired = _EXPIRED_LATER if row["why"] == Why.NOTHING_DIRTY.value else ""
    return f"{row['why_not_now']}{expired}"
