"""Filters messages of the old formats (magic 0 and 1), one by one: they are rare. They keep their format, as with Kafka's cleaner."""

from __future__ import annotations

import numpy as np

from txbroker.log.cleaner.cleaning_job import Removable, SegmentSpan
from txbroker.log.cleaner.file_chunks import Chunk, unpacked_bytes_max
from txbroker.log.cleaner.filter_rules import FilterRules, SegmentTarget
from txbroker.log.cleaner.old_messages import Entry, Message, read_messages, with_messages
from txbroker.log.cleaner.removed_counts import Outcome, Tally
from txbroker.log.disk import Buffer

Judged = tuple[Outcome, int]  # with the offset of the record that is kept instead, or -1


class MessageFilter:
    """Filters the messages of a pass."""

    def __init__(self, rules: FilterRules) -> None:
        self._rules = rules
        self._job = rules.job
        clean = [span for span in self._job.segments if span.base_offset < self._job.first_dirty_offset]
        # Old messages have no delete horizon: their tombstones stay for delete.retention.ms after the clean part was last modified.
        self._tombstones_before_ms = clean[-1].modified_ms - self._job.settings.delete_retention_ms if clean else 0

    def clean(self, chunk: Chunk, span: SegmentSpan, target: SegmentTarget) -> None:
        """Filter a chunk of old messages."""
        keep_tombstones = span.modified_ms > self._tombstones_before_ms
        parts: list[Buffer] = []
        rows: list[tuple[int, int, int]] = []
        entries = list(read_messages(target.reader, chunk, unpacked_bytes_max(self._job)))
        messages = [message for entry in entries for message in entry.messages]
        outcomes = iter(self._judge(messages, keep_tombstones, target.tombstones_end))
        for entry in entries:
            target.tally.records_before += len(entry.messages)
            judged = [(message, next(outcomes)) for message in entry.messages]
            cleaned = self._cleaned_entry(chunk, entry, judged, target.tally)
            if cleaned is not None:
                parts.append(cleaned[0])
                rows.append((len(cleaned[0]), cleaned[1], cleaned[2]))
        target.tally.bytes_after += sum(size for size, _, _ in rows)
        if target.out is not None and rows:
            size, last, timestamp = np.array(rows, dtype=np.int64).T
            target.out.add(parts, size, last, timestamp)

    def _judge(self, messages: list[Message], keep_tombstones: bool, tombstones_end: int) -> list[Judged]:
        found: list[Judged] = [(Outcome.KEPT, -1)] * len(messages)
        keyed: list[int] = []
        for number, message in enumerate(messages):
            if message.offset < self._rules.map_end:
                if message.key is None:
                    found[number] = (Outcome.INVALID, -1)
                else:
                    keyed.append(number)
        if keyed:
            obsolete, kept = self._rules.keys.messages_obsolete([messages[number] for number in keyed])
            for number, loses, offset in zip(keyed, obsolete.tolist(), kept.tolist(), strict=True):
                message = messages[number]
                if loses:
                    found[number] = (Outcome.OBSOLETE, offset)
                elif message.value is None and not keep_tombstones and message.offset < tombstones_end:
                    found[number] = (Outcome.DELETED, -1)
        return found

    def _cleaned_entry(
        self, chunk: Chunk, entry: Entry, judged: list[tuple[Message, Judged]], tally: Tally
    ) -> tuple[Buffer, int, int] | None:
        """What is left of an entry: its bytes, last offset and largest timestamp; None when nothing is."""
        kept = [message for message, (outcome, _) in judged if outcome is Outcome.KEPT]
        header, size = entry.header, entry.header.size
        unchanged = header.last_offset >= self._job.first_uncleanable_offset
        # The old formats have no empty batches: the last entry of the cleaned range stays whole instead.
        last_of_range = header.last_offset + 1 == self._job.first_uncleanable_offset
        if unchanged or len(kept) == len(judged) or (not kept and last_of_range):
            return memoryview(chunk.buffer)[entry.at : entry.at + size], header.last_offset, header.max_timestamp
        for message, (outcome, kept_offset) in judged:
            tally.count(outcome, 1)
            if self._job.dry and outcome is not Outcome.KEPT:
                bytes_of = len(message.key or b"") + len(message.value or b"")
                self._rules.report(Removable(offset=message.offset, timestamp=message.timestamp, key=message.key, size=bytes_of,
                                             reason=outcome.name.lower(), kept_offset=kept_offset))  # fmt: skip
        if not kept:
            return None
        timestamp = header.max_timestamp if header.log_append_time else max(message.timestamp for message in kept)
        return with_messages(entry, kept), kept[-1].offset, timestamp
