"""The second half of a pass: copies what stays of each segment, by the rules of Kafka's Cleaner.cleanInto and MemoryRecords.filterTo.

A record stays when it is after the end of the map, or when it is the latest of its key and has a value or is a tombstone whose delete
horizon has not passed. An empty batch stays for the sequence of an active producer, and at the end of the cleaned range. A batch that
still has tombstones, and the marker of a transaction without data, get a delete horizon once. Unchanged batches are copied as they are.

Two rules are stricter than Kafka's: nothing at `first_uncleanable_offset` or above is changed, and a tombstone after the end of the map
gets no horizon, because the records that it deletes are still in the log.
"""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.batch_filter import BatchFilter
from txbroker.log.cleaner.cleaning_job import SegmentSpan
from txbroker.log.cleaner.filter_rules import FilterRules, SegmentTarget
from txbroker.log.cleaner.message_filter import MessageFilter


class SegmentFilter:
    """Filters the segments of a pass, in order."""

    def __init__(self, rules: FilterRules) -> None:
        self._rules = rules
        self._messages = MessageFilter(rules)

    def clean(self, span: SegmentSpan, target: SegmentTarget) -> None:
        """Filter one segment; CorruptRecords with the path and the position."""
        reader = target.reader
        for chunk in reader.chunks():
            target.tally.bytes_before += chunk.bytes
            if chunk.batches is None:
                self._messages.clean(chunk, span, target)
                continue
            try:
                BatchFilter(self._rules, chunk, chunk.batches, target).run()
            except CorruptRecords as error:
                if reader.path in str(error):
                    raise
                raise reader.corrupt_in(chunk, str(error)) from None
