"""Why a topic is not compacted: the reason that a txbroker reports, or the rules of Kafka's log cleaner (LogCleanerManager)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txbroker.cli.doctor.facts import CleaningFacts, Configs, PartitionFacts
from txbroker.cli.doctor.findings import FAILED, OK, WARNING, Finding, named
from txbroker.console.texts import duration, size_text

CHECK = "compaction"
WEEK_MS = 7 * 24 * 3600 * 1000
NO_LAG_LIMIT_MS = 2**63 - 1
# The reasons that a txbroker reports (Why in log/cleaner/cleanable.py), where there is something to do.
ADVICE = {
    "active-segment": (
        WARNING,
        "lower segment.ms or segment.bytes, so that segments are rolled; `txbroker log-cleaner --compact-now TOPIC --roll` rolls them now",
    ),
    "disabled": (WARNING, "set log.cleaner.enable=true, and log.cleaner.threads to 1 or more"),
    "uncleanable": (FAILED, "see the broker's log, and `txbroker log verify`; `txbroker log-cleaner --compact-now TOPIC` tries again"),
    "unstable": (WARNING, "end the producer's open transaction; it is aborted after its transaction.timeout.ms"),
    "dirty-ratio": (OK, "`txbroker log-cleaner --compact-now TOPIC` does not wait for it"),
}  # fmt: skip


def explain(configs: Configs, partitions: Sequence[PartitionFacts]) -> Iterator[Finding]:
    """The findings on compaction; at least one."""
    if "compact" not in configs.policy:
        yield Finding(OK, CHECK, "the topic is not compacted: cleanup.policy has no compact")
        return
    reported = [(part, part.cleaning) for part in partitions if part.cleaning is not None]
    if reported:
        yield from _of_broker(reported)
        for part in partitions:
            if any(not segment.active for segment in part.segments):
                yield Finding(OK, CHECK, _state_of_files(part)[0])
        return
    if configs.broker.get("log.cleaner.enable") == "false":
        advice = "set log.cleaner.enable=true and restart the broker"
        yield Finding(WARNING, CHECK, "the broker does not compact: log.cleaner.enable is false", advice)
        return
    ratio = configs.topic.get("min.cleanable.dirty.ratio") or "0.5"
    min_lag_ms = configs.number("min.compaction.lag.ms", 0)
    max_lag_ms = configs.number("max.compaction.lag.ms", NO_LAG_LIMIT_MS)
    segment_ms = configs.number("segment.ms", WEEK_MS)
    rules = [
        f"the active segment is never compacted (it is rolled after segment.ms={segment_ms}, {duration(segment_ms)}, or when it is full)",
        f"the others are compacted when min.cleanable.dirty.ratio={ratio} of them is dirty",
    ]
    if min_lag_ms:
        rules.append(f"records are kept for at least min.compaction.lag.ms={min_lag_ms} ({duration(min_lag_ms)})")
    if max_lag_ms != NO_LAG_LIMIT_MS:
        rules.append(f"and compacted after max.compaction.lag.ms={max_lag_ms} ({duration(max_lag_ms)})")
    with_files = [part for part in partitions if part.segments]
    if not with_files:
        small = [part for part in partitions if part.size is not None and part.size < configs.number("segment.bytes", 1 << 30)]
        if partitions and len(small) == len(partitions) and not all(part.empty for part in partitions):
            advice = "lower segment.ms or segment.bytes, so that segments are rolled; --log-dir shows the segments"
            found = f"{'; '.join(rules)}; every partition is smaller than one segment, so that all of it may be active"
            yield Finding(WARNING, CHECK, found, advice)
        else:
            yield Finding(OK, CHECK, "; ".join(rules))
        return
    for part in with_files:
        yield _of_files(part, float(ratio), rules)


def _of_broker(reported: Sequence[tuple[PartitionFacts, CleaningFacts]]) -> Iterator[Finding]:
    """One finding for each reason, with the text of the first partition that has it."""
    by_reason: dict[str, list[tuple[PartitionFacts, CleaningFacts]]] = {}
    for part, cleaning in reported:
        by_reason.setdefault(cleaning.why, []).append((part, cleaning))
    for why, those in by_reason.items():
        part, cleaning = those[0]
        outcome, advice = ADVICE.get(why, (OK, ""))
        others = f"; the same for {named([other.name for other, _ in those[1:]])}" if len(those) > 1 else ""
        sentence = cleaning.sentence or f"its dirty ratio is {cleaning.dirty_ratio:.2f}, and it is about to be compacted"
        yield Finding(outcome, CHECK, f"{part.name}: {sentence}{others}", advice)


def _of_files(part: PartitionFacts, ratio_min: float, rules: Sequence[str]) -> Finding:
    closed = [segment for segment in part.segments if not segment.active]
    if not closed:
        advice = "lower segment.ms or segment.bytes, so that segments are rolled"
        return Finding(WARNING, CHECK, f"{part.name} has only the active segment; {rules[0]}", advice)
    found, ratio, dirty = _state_of_files(part)
    if ratio < ratio_min or not dirty:
        return Finding(OK, CHECK, f"{found}, below min.cleanable.dirty.ratio={ratio_min:g}")
    advice = "wait for the cleaner's next pass (log.cleaner.backoff.ms), or see the broker's log for errors of the cleaner"
    return Finding(WARNING, CHECK, f"{found}, at or above min.cleanable.dirty.ratio={ratio_min:g}: it is due", advice)


def _state_of_files(part: PartitionFacts) -> tuple[str, float, int]:
    """The state of the closed segments: as text, the dirty ratio, and the dirty bytes."""
    closed = [segment for segment in part.segments if not segment.active]
    first_dirty = part.first_dirty_offset if part.first_dirty_offset is not None else closed[0].base_offset
    clean = sum(segment.size for segment in closed if segment.base_offset < first_dirty)
    dirty = sum(segment.size for segment in closed if segment.base_offset >= first_dirty)
    ratio = dirty / max(clean + dirty, 1)
    state = f"{size_text(clean)} compacted up to offset {first_dirty}, {size_text(dirty)} in closed segments not yet"
    return f"{part.name}: {state}: a dirty ratio of {ratio:.2f}", ratio, dirty
