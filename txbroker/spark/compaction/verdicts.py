"""What happened to each record between two snapshots of a compacted topic, and whether it may.

A record that is gone is, by the first of these rules that fits:

- expired: below the log start offset, if the topic's cleanup.policy has `delete`; else EXPIRED_WITHOUT_RETENTION.
- TRUNCATED: at or above the end of the log.
- ABOVE_CHECKPOINT: at or above the offset that the cleaner has come to.
- without a key: the cleaner removes such records.
- compacted: a record of its key below the cleaner's offset comes after it, by the topic's strategy.
- RESURRECTED: a tombstone, and an older value of its key is still there and now the latest.
- TOMBSTONE_EARLY: a tombstone whose delete horizon has not passed. Where it had no horizon before, the earliest possible one counts.
- deleted: a tombstone whose delete horizon has passed; `deleted, not checked` where the horizon is not known.
- LOST: none of these: it was the latest of its key.

A record that is there is kept, new, CHANGED, or APPEARED at an offset that had no record. REORDERED are those of both whose content was at
another offset before. The names in capitals are violations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from txbroker.spark.checksum import CONTENT
from txbroker.spark.compaction.digest import NO_HORIZON, ON
from txbroker.spark.compaction.facts import Part

KEY_SHOWN_MAX = 80
PARTITION = ("replica", "topic", "partition")


class Kind(StrEnum):
    """What happened to a record."""

    KEPT = "kept"
    NEW = "new"
    COMPACTED = "compacted"
    EXPIRED = "expired"
    WITHOUT_KEY = "without key"
    DELETED = "tombstones deleted"
    NOT_CHECKED = "tombstones deleted, not checked"
    LOST = "lost"
    CHANGED = "changed"
    REORDERED = "reordered"
    APPEARED = "appeared"
    ABOVE_CHECKPOINT = "removed above the checkpoint"
    TOMBSTONE_EARLY = "tombstone dropped early"
    RESURRECTED = "deleted key is back"
    TRUNCATED = "truncated"
    EXPIRED_WITHOUT_RETENTION = "expired without retention"


ALLOWED = (Kind.KEPT, Kind.NEW, Kind.COMPACTED, Kind.EXPIRED, Kind.WITHOUT_KEY, Kind.DELETED, Kind.NOT_CHECKED)
VIOLATIONS = tuple(kind for kind in Kind if kind not in ALLOWED)
_MOVED = (Kind.LOST, Kind.CHANGED, Kind.APPEARED, Kind.ABOVE_CHECKPOINT)


class Bounds(NamedTuple):
    """One partition of one replica, before and now. `clean_end`: up to where the cleaner may have come. `expires`: whether retention may
    delete. `horizon`: the earliest possible delete horizon of a tombstone that had none, ms."""

    replica: str
    topic: str
    partition: int
    start_before: int
    end_before: int
    start: int
    end: int
    clean_end: int
    expires: bool
    horizon: int


_BOUNDS = ("replica STRING, topic STRING, partition INT, start_before BIGINT, end_before BIGINT, start BIGINT, end BIGINT, "
           "clean_end BIGINT, expires BOOLEAN, horizon BIGINT")  # fmt: skip


class Example(NamedTuple):
    """One record of a violation."""

    offset: int
    key: str | None
    tombstone: bool


class Violation(NamedTuple):
    """Records of one partition with the same fault: how many, the first offset, and some of them."""

    kind: Kind
    replica: str
    topic: str
    partition: int
    records: int
    first_offset: int
    examples: Sequence[Example]


class Verdict(NamedTuple):
    """`counts`: by partition and kind, of everything that is allowed. `before`: how many records there were."""

    counts: Mapping[tuple[str, str, int], Mapping[Kind, int]]
    before: Mapping[tuple[str, str, int], int]
    violations: Sequence[Violation]


def judge(spark: Any, before: Any, after: Any, bounds: Sequence[Bounds], now_ms: int, examples: int) -> Verdict:
    """Compare two digests (`digest`). `after` may have been read while the cleaner ran, if the bounds were read later."""
    from pyspark.sql import functions as f

    judged = _judged(spark, before, after, bounds, now_ms)
    sums = judged.groupBy(*PARTITION, "kind").agg(f.count("*"), f.count_if(f.col("was"))).collect()
    counts: dict[tuple[str, str, int], dict[Kind, int]] = {(one.replica, one.topic, one.partition): {} for one in bounds}
    was = dict.fromkeys(counts, 0)
    for replica, topic, partition, kind, count, old in sums:
        counts[replica, topic, partition][Kind(kind)] = count
        was[replica, topic, partition] += old
    found = _violations(judged, examples) if any(kind in VIOLATIONS for one in counts.values() for kind in one) else []
    allowed = {key: {kind: one[kind] for kind in ALLOWED if kind in one} for key, one in counts.items()}
    return Verdict(allowed, was, found)


def _judged(spark: Any, before: Any, after: Any, bounds: Sequence[Bounds], now_ms: int) -> Any:
    """A row for each record of either digest with its `kind`."""
    from pyspark.sql import functions as f

    fields = ("key", "rank", "tombstone", *CONTENT)
    old = before.selectExpr(*ON, *(f"{name} AS old_{name}" for name in fields), "horizon AS old_horizon", "true AS old")
    new = after.selectExpr(*ON, *(f"{name} AS new_{name}" for name in fields), "true AS new")
    sides = old.join(new, list(ON), "full_outer").selectExpr(
        *ON, "old IS NOT NULL AS was", "new IS NOT NULL AS there", *(f"coalesce(old_{name}, new_{name}) AS {name}" for name in fields[:3]),
        *(f"{side}_{name}" for side in ("old", "new") for name in CONTENT), "old_horizon",
        " OR ".join(f"old_{name} != new_{name}" for name in CONTENT) + " AS differs")  # fmt: skip
    limits = f.broadcast(spark.createDataFrame([tuple(one) for one in bounds], _BOUNDS))
    placed = sides.join(limits, list(PARTITION))
    latest = placed.where("key IS NOT NULL").groupBy(*PARTITION, "key").agg(
        f.expr("max(rank) AS top"),
        f.expr("max(CASE WHEN offset < clean_end THEN rank END) AS top_clean"),
        f.expr("max(CASE WHEN there AND NOT tombstone THEN rank END) AS top_value"),
    )
    return placed.join(latest, [*PARTITION, "key"], "left").withColumn("kind", f.expr(_kind(now_ms)))


def _kind(now_ms: int) -> str:
    """SQL by the rules of this module."""
    horizon = f"CASE WHEN old_horizon = {NO_HORIZON} THEN horizon ELSE old_horizon END"
    rules = {
        "was AND there AND differs": Kind.CHANGED,
        "was AND there": Kind.KEPT,
        "NOT was AND offset >= end_before": Kind.NEW,
        "NOT was": Kind.APPEARED,
        "offset < start AND expires": Kind.EXPIRED,
        "offset < start": Kind.EXPIRED_WITHOUT_RETENTION,
        "offset >= end": Kind.TRUNCATED,
        "offset >= clean_end": Kind.ABOVE_CHECKPOINT,
        "key IS NULL": Kind.WITHOUT_KEY,
        "rank < top_clean": Kind.COMPACTED,
        "tombstone AND rank = top AND top_value IS NOT NULL": Kind.RESURRECTED,
        "tombstone AND old_horizon IS NULL": Kind.NOT_CHECKED,
        f"tombstone AND {now_ms}L < {horizon}": Kind.TOMBSTONE_EARLY,
        "tombstone": Kind.DELETED,
    }
    cases = " ".join(f"WHEN {rule} THEN '{kind}'" for rule, kind in rules.items())
    return f"CASE {cases} ELSE '{Kind.LOST}' END"


def _violations(judged: Any, examples: int) -> list[Violation]:
    """The violations by partition and kind, with those that are records in another place named so."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    wrong = judged.where(f.col("kind").isin(*VIOLATIONS)).select(
        *ON, "kind", "key", "tombstone", *(f"{side}_{name}" for side in ("old", "new") for name in CONTENT)).persist()  # fmt: skip
    try:
        moved = wrong.where(f.col("kind").isin(*_MOVED))
        from_, to = moved.alias("one"), moved.alias("other")
        same = [f.col(f"one.{name}") == f.col(f"other.{name}") for name in PARTITION]
        same += [f.col(f"one.old_{name}") == f.col(f"other.new_{name}") for name in CONTENT]
        pairs = from_.join(to, [*same, f.col("one.offset") != f.col("other.offset")])
        both = [pairs.select(*(f"{side}.{name}" for name in ON)) for side in ("one", "other")]
        reordered = both[0].unionByName(both[1]).distinct().withColumn("reordered", f.lit(True))
        named = wrong.join(reordered, list(ON), "left").withColumn(
            "kind", f.when(f.col("reordered"), f.lit(str(Kind.REORDERED))).otherwise(f.col("kind")))  # fmt: skip
        group = Window.partitionBy(*PARTITION, "kind")
        numbered = named.withColumn("count", f.count("*").over(group)).withColumn("number", f.row_number().over(group.orderBy("offset")))
        rows = numbered.where(f.col("number") <= examples).orderBy(*PARTITION, "kind", "offset")
        found: dict[tuple[Any, ...], Violation] = {}
        for row in rows.select(*PARTITION, "kind", "count", "offset", "key", "tombstone").collect():
            replica, topic, partition, kind, count, offset, key, tombstone = row
            example = Example(offset, None if key is None else key_text(bytes(key)), tombstone)
            place = (replica, topic, partition, kind)
            others = found[place].examples if place in found else ()
            first = found[place].first_offset if place in found else offset
            found[place] = Violation(Kind(kind), replica, topic, partition, count, first, (*others, example))
        return list(found.values())
    finally:
        wrong.unpersist()


def key_text(key: bytes) -> str:
    """A key for people: UTF-8 if it is that, else hexadecimal digits; cut."""
    try:
        text = key.decode()
        text = text if text.isprintable() else key.hex()
    except UnicodeDecodeError:
        text = key.hex()
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[:KEY_SHOWN_MAX]}…"


def bounds_of(before: Part, now: Part, *, clean_end: int, expires: bool, horizon: int) -> Bounds:
    """The bounds of one partition."""
    return Bounds(*before[:3], before.log_start, before.end, now.log_start, now.end, clean_end, expires, horizon)
