"""Why a topic is not compacted: what Kafka's log cleaner (LogCleanerManager) waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txbroker.cli.doctor.facts import Configs, PartitionFacts
from txbroker.cli.doctor.findings import OK, WARNING, Finding
from txbroker.cli.doctor.texts import duration
from txbroker.cli.progress import size_text

CHECK = "compaction"
WEEK_MS = 7 * 24 * 3600 * 1000
NO_LAG_LIMIT_MS = 2**63 - 1
# Whether this version of txbroker has a cleaner. Whose broker it is cannot be asked; Apache Kafka has one.
COMPACTS = False
NOT_YET = "this version of txbroker keeps such topics as they are and does not compact them yet; on Apache Kafka"


def explain(configs: Configs, partitions: Sequence[PartitionFacts], *, compacts: bool = COMPACTS) -> Iterator[Finding]:
    """Findings on compaction. `compacts`: whether a txbroker does so at all."""
    if "compact" not in configs.policy:
        yield Finding(OK, CHECK, "older values of a key stay, since cleanup.policy has no compact")
        return
    if not compacts:
        advice = "of records that may go by age: cleanup.policy=compact,delete with retention.ms"
        yield Finding(WARNING, CHECK, NOT_YET + " the rules below hold", advice)
    if configs.broker.get("log.cleaner.enable") == "false":
        advice = "set log.cleaner.enable=true and restart it"
        yield Finding(WARNING, CHECK, "the broker does not compact: log.cleaner.enable is false", advice)
        return
    ratio = configs.topic.get("min.cleanable.dirty.ratio") or "0.5"
    min_lag_ms = configs.number("min.compaction.lag.ms", 0)
    max_lag_ms = configs.number("max.compaction.lag.ms", NO_LAG_LIMIT_MS)
    segment_ms = configs.number("segment.ms", WEEK_MS)
    rules = [
        f"the active segment is never compacted (it is closed after segment.ms={segment_ms}, {duration(segment_ms)}, or when it is full)",
        f"closed ones are once min.cleanable.dirty.ratio={ratio} of them is new",
    ]
    if min_lag_ms:
        rules.append(f"records stay at least min.compaction.lag.ms={min_lag_ms} ({duration(min_lag_ms)})")
    if max_lag_ms != NO_LAG_LIMIT_MS:
        rules.append(f"and not longer than max.compaction.lag.ms={max_lag_ms} ({duration(max_lag_ms)})")
    looked_at = [part for part in partitions if part.segments]
    if not looked_at:
        small = [part for part in partitions if part.size is not None and part.size < configs.number("segment.bytes", 1 << 30)]
        if partitions and len(small) == len(partitions) and not all(part.empty for part in partitions):
            advice = "lower segment.ms or segment.bytes, so that segments are closed; --log-dir shows the segments"
            found = f"{'; '.join(rules)}; every partition is smaller than one segment, so all of it may be active"
            yield Finding(WARNING, CHECK, found, advice)
        else:
            yield Finding(OK, CHECK, "; ".join(rules))
        return
    for part in looked_at:
        yield _of_files(part, float(ratio), rules)


def _of_files(part: PartitionFacts, ratio_wanted: float, rules: Sequence[str]) -> Finding:
    closed = [segment for segment in part.segments if not segment.active]
    if not closed:
        advice = "lower segment.ms or segment.bytes, so that segments are closed"
        return Finding(WARNING, CHECK, f"{part.name} has the active segment only; {rules[0]}", advice)
    first_dirty = part.first_dirty_offset if part.first_dirty_offset is not None else closed[0].base_offset
    clean = sum(segment.size for segment in closed if segment.base_offset < first_dirty)
    dirty = sum(segment.size for segment in closed if segment.base_offset >= first_dirty)
    ratio = dirty / max(clean + dirty, 1)
    state = f"{size_text(clean)} compacted up to offset {first_dirty}, {size_text(dirty)} closed and not yet"
    found = f"{part.name}: {state}: a dirty ratio of {ratio:.2f}"
    if ratio < ratio_wanted or not dirty:
        return Finding(OK, CHECK, f"{found}, below min.cleanable.dirty.ratio={ratio_wanted:g}")
    advice = "wait for the cleaner's next round (log.cleaner.backoff.ms), or see the broker's log for the cleaner's errors"
    return Finding(WARNING, CHECK, f"{found}, at or above min.cleanable.dirty.ratio={ratio_wanted:g}: it is due", advice)
