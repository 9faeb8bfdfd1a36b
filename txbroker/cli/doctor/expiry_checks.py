"""Why records of a topic have not expired: retention by time and size deletes whole segments, the oldest first.

The rules are those of Kafka's UnifiedLog.deleteOldSegments and LogSegment.shouldRoll. A segment is deleted when its largest timestamp is
older than retention.ms: one late or future timestamp keeps the whole segment, and every segment after it. The active segment can be
deleted too, but new records keep it young: it is rolled when it is full (segment.bytes), or when a record comes that is segment.ms
later than its first one. With retention.precise=true each check moves the log's start past all expired records, also within the active
segment; a record that has not expired, such as one with a future timestamp, keeps those after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txbroker.cli.doctor.facts import Configs, PartitionFacts, SegmentFacts
from txbroker.cli.doctor.findings import OK, WARNING, Finding, named
from txbroker.console.texts import duration, moment, size_text

CHECK = "expiry"
WEEK_MS = 7 * 24 * 3600 * 1000
GIB = 1 << 30
# A retention check may be this late, and the clocks of two machines may differ by as much.
SLACK_MS = 60_000
# Producers' clocks differ a little.
FUTURE_MS = 60_000


def explain(configs: Configs, partitions: Sequence[PartitionFacts], now_ms: int) -> Iterator[Finding]:
    """The findings on expiry; at least one."""
    if "delete" not in configs.policy:
        policy = ",".join(sorted(configs.policy)) or "empty"
        found = f"records are not deleted by age or size: cleanup.policy is {policy}"
        yield Finding(OK, CHECK, f"{found}; cleanup.policy=compact,delete does both")
        return
    yield from _future(configs, partitions, now_ms)
    retention_ms, retention_bytes = configs.number("retention.ms", WEEK_MS), configs.number("retention.bytes", -1)
    if retention_ms < 0 and retention_bytes < 0:
        yield Finding(OK, CHECK, "records never expire: retention.ms and retention.bytes are -1, no limit")
        return
    if retention_ms >= 0:
        yield from _by_time(configs, partitions, retention_ms, now_ms)
    if retention_bytes >= 0:
        yield from _by_size(configs, partitions, retention_bytes)


def _future(configs: Configs, partitions: Sequence[PartitionFacts], now_ms: int) -> Iterator[Finding]:
    """Future timestamps keep their segment, and all after it, for longer."""
    ahead = [(part, part.newest_ms - now_ms) for part in partitions if part.newest_ms is not None and part.newest_ms - now_ms > FUTURE_MS]
    if not ahead:
        return
    worst, worst_ms = max(ahead, key=lambda pair: pair[1])
    assert worst.newest_ms is not None
    names = named([part.name for part, _ in ahead])
    found = f"{names}: records have timestamps in the future, up to {moment(worst.newest_ms)}, {duration(worst_ms)} from now"
    if configs.topic.get("message.timestamp.type") == "LogAppendTime":
        advice = "the broker sets these timestamps: its clock or this machine's is wrong; synchronize them (NTP)"
        yield Finding(WARNING, "clocks", found, advice)
        return
    retention_ms = configs.number("retention.ms", WEEK_MS)
    until = f" until {moment(worst.newest_ms + retention_ms)}" if retention_ms >= 0 else ""
    advice = (
        "correct the producer's clock or unit (milliseconds, not micro- or nanoseconds); set message.timestamp.after.max.ms=3600000 to "
        "refuse such records, or message.timestamp.type=LogAppendTime; `txbroker delete-records` deletes the existing ones"
    )
    kept = "they, and all records after them," if _precise(configs) else "their segments, and all segments after these,"
    yield Finding(WARNING, CHECK, f"{found}; {kept} are kept{until}", advice)


def _precise(configs: Configs) -> bool:
    return configs.topic.get("retention.precise") == "true"


def _by_time(configs: Configs, partitions: Sequence[PartitionFacts], retention_ms: int, now_ms: int) -> Iterator[Finding]:
    interval_ms = configs.broker_number("log.retention.check.interval.ms", 300_000)
    kept = f"records are kept for retention.ms={retention_ms} ({duration(retention_ms)})"
    known = [part for part in partitions if not part.empty and part.oldest_ms is not None]
    if not known:
        reason = "there are no records" if all(part.empty for part in partitions) else "the records have no timestamps"
        yield Finding(OK, CHECK, f"{kept}; {reason}")
        return
    overdue = [part for part in known if _age_ms(part, now_ms) > retention_ms + interval_ms + SLACK_MS]
    oldest = max(known, key=lambda part: _age_ms(part, now_ms))
    age_ms = _age_ms(oldest, now_ms)
    assert oldest.oldest_ms is not None
    if not overdue:
        due = "" if age_ms <= retention_ms else f": due at the next check (log.retention.check.interval.ms={interval_ms})"
        yield Finding(OK, CHECK, f"{kept}; the oldest one is from {moment(oldest.oldest_ms)}, {duration(max(age_ms, 0))} ago{due}")
        return
    advice = (
        "lower segment.ms (or segment.bytes), usually to retention.ms or less, so that segments are rolled and can be deleted, for example "
        "with `txbroker topics --alter --config segment.ms=3600000`; or set retention.precise=true, which deletes record by record"
    )
    if _precise(configs):
        yield from _overdue_although_precise(overdue, kept, interval_ms, now_ms)
        return
    for part in overdue[:3]:
        first = part.segments[0] if part.segments else None
        if first is None:
            found = f"{part.name}: {kept}, and its first record is {duration(_age_ms(part, now_ms))} old"
            why = _guess(configs, part, retention_ms, now_ms)
            yield Finding(WARNING, CHECK, f"{found}; {why}", f"{advice}; --log-dir, on the broker's machine, shows the segments")
        else:
            yield _pinned(configs, part, first, retention_ms, interval_ms, now_ms, advice)
    if len(overdue) > 3:
        yield Finding(WARNING, CHECK, f"the same for {named([part.name for part in overdue[3:]])}", advice)


def _overdue_although_precise(overdue: Sequence[PartitionFacts], kept: str, interval_ms: int, now_ms: int) -> Iterator[Finding]:
    """The last check should have moved the start of the log past their first records."""
    worst = max(overdue, key=lambda part: _age_ms(part, now_ms))
    found = f"{named([part.name for part in overdue])}: {kept}, and deleted one by one (retention.precise=true); the first record is "
    found += f"{duration(_age_ms(worst, now_ms))} old"
    advice = (
        f"checks run every log.retention.check.interval.ms={interval_ms}, and delete nothing above the high watermark: see the broker's "
        "log, and txbroker_retention_lag_ms on its metrics port; after a change of retention.precise or retention.ms wait for a check"
    )
    yield Finding(WARNING, CHECK, found, advice)


def _age_ms(part: PartitionFacts, now_ms: int) -> int:
    return now_ms - part.oldest_ms if part.oldest_ms is not None else 0


def _guess(configs: Configs, part: PartitionFacts, retention_ms: int, now_ms: int) -> str:
    """Without the files: what the partition's size and newest record say about its first segment."""
    segment_bytes, segment_ms = configs.number("segment.bytes", GIB), configs.number("segment.ms", WEEK_MS)
    assert part.oldest_ms is not None
    rule = "a segment is deleted as a whole, when its newest record is old enough"
    newest = "" if part.newest_ms is None else f"; the newest is from {moment(part.newest_ms)}"
    if part.size is not None and part.size < segment_bytes:
        roll_ms = part.oldest_ms + segment_ms
        rolls = f"the first record after {moment(roll_ms)}" if roll_ms > now_ms else "the next record"
        small = f"the partition ({size_text(part.size)}) is smaller than segment.bytes={segment_bytes}"
        held = f"{small}, so that all of it may be in the active segment"
        expires = ""
        if part.newest_ms is not None:
            expires = f"; without new records, it is deleted after {moment(part.newest_ms + retention_ms)}"
        return f"{rule}{newest}; {held}, which {rolls} rolls (segment.ms={segment_ms}, {duration(segment_ms)}){expires}"
    return f"{rule}{newest}; a segment may span segment.ms={segment_ms} ({duration(segment_ms)}) or segment.bytes={segment_bytes}"


def _pinned(
    configs: Configs, part: PartitionFacts, first: SegmentFacts, retention_ms: int, interval_ms: int, now_ms: int, advice: str
) -> Finding:
    """With the files: which segment keeps the start of the log, and until when."""
    largest = moment(first.expires_by_ms)
    what = f"{part.name}: its oldest segment, from offset {first.base_offset} ({size_text(first.size)}"
    due_ms = first.expires_by_ms + retention_ms
    if now_ms > due_ms + interval_ms + SLACK_MS:
        reason = f"{what}), has no record newer than {largest} and has been due since {moment(due_ms)}"
        todo = "see the broker's log: it deletes nothing above the high watermark, and nothing in a log directory that failed"
        return Finding(WARNING, CHECK, reason, todo)
    state = ", the active one" if first.active else ""
    since = moment(first.expires_by_ms if first.first_ms is None else first.first_ms)
    reason = f"{what}{state}), holds records from {since} to {largest}: it is deleted after {moment(due_ms)}"
    if first.active:
        segment_ms = configs.number("segment.ms", WEEK_MS)
        roll_ms = (first.first_ms if first.first_ms is not None else first.modified_ms) + segment_ms
        rolls = f"the first record after {moment(roll_ms)}" if roll_ms > now_ms else "the next record"
        reason += f", later if new records come; {rolls} rolls it (segment.ms={segment_ms}, {duration(segment_ms)})"
    return Finding(WARNING, CHECK, reason, advice)


def _by_size(configs: Configs, partitions: Sequence[PartitionFacts], retention_bytes: int) -> Iterator[Finding]:
    segment_bytes = configs.number("segment.bytes", GIB)
    bound = retention_bytes + segment_bytes
    limit = f"retention.bytes={retention_bytes} ({size_text(retention_bytes)})"
    kept = f"each partition keeps {limit} and up to one segment.bytes={segment_bytes} more"
    sizes = [(part.size, part) for part in partitions if part.size is not None]
    if not sizes:
        yield Finding(OK, CHECK, f"{kept}; their sizes are not known")
        return
    largest, _ = max(sizes, key=lambda pair: pair[0])
    above = [part.name for size, part in sizes if size > bound]
    if above:
        advice = "see the broker's log; checks run every log.retention.check.interval.ms, and delete nothing above the high watermark"
        yield Finding(WARNING, CHECK, f"{kept}; {named(above)} are larger, up to {size_text(largest)}", advice)
    else:
        yield Finding(OK, CHECK, f"{kept}; the largest one has {size_text(largest)}")
