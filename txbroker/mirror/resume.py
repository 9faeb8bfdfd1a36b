"""Where to continue to copy a partition: at the start, and after each failure.

The target's end says how many records were copied, and its last records are compared with those that would be copied again, so that a
record is neither lost nor doubled whenever the mirror ended. The map that is stored may be older than the target's end: it is brought up
to date from the comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.task import deferLater

from txbroker.client.client_errors import Closed, RequestFailed
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_leaders import TopicLeaders
from txbroker.errors import ErrorCode
from txbroker.log.aborted_transactions import aborted_in
from txbroker.mirror.batches import UNPACKED_BYTES_MAX, Ready, Rules, Tally, prepare, records_of
from txbroker.mirror.cluster import READ_COMMITTED, Cluster
from txbroker.mirror.map_topic import MapTopic
from txbroker.mirror.partition import PartitionCopy
from txbroker.mirror.requests import fetch, new_producer_id, records_in
from txbroker.mirror.settings import MirrorSettings
from txbroker.names import amount
from txbroker.wire import entries
from txbroker.wire.batch import BatchHeader
from txbroker.wire.records import Record

log = logging.getLogger("txbroker.mirror")

EMPTY_FETCH_RETRY_S = 0.2


class MustStop(Exception):
    """A partition cannot be copied any further. The text says why and what to do."""


class Resuming:
    """Finds positions. `rules` are those of a topic."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        map_topic: MapTopic,
        settings: MirrorSettings,
        rules: Callable[[str], Rules],
        reactor: Any,
    ) -> None:
        self._source = source
        self._target = target
        self._map_topic = map_topic
        self._settings = settings
        self._rules = rules
        self._reactor = reactor

    async def resume(self, copy: PartitionCopy) -> None:
        """Have the partition copied from where the target ends; MustStop, ClientError, CorruptRecords."""
        source_start, source_end = await self._bounds(self._source, copy)
        target_start, target_end = await self._bounds(self._target, copy)
        copy.source_start, copy.high_watermark = source_start, source_end
        if copy.keep_offsets:
            position = source_start if target_end == target_start and target_end <= source_start else target_end
        else:
            position = await self._mapped(copy, source_start, target_start, target_end)
        copy.found(position, target_end)
        if position > source_end:
            raise MustStop(
                f"{copy} of the source ends at offset {source_end}, and was copied up to {position}: the source lost records. Find out "
                "why; to copy it again, delete the topic on the target"
            )
        copy.begin(self.unexpired(copy, position, source_start), target_end)

    def unexpired(self, copy: PartitionCopy, position: int, source_start: int) -> int:
        """The position, or with --on-expired skip the source's start above it; MustStop."""
        if position >= source_start:
            return position
        what = f"the source deleted offsets {position} to {source_start - 1} of {copy} before they were copied"
        if not self._settings.skip_expired:
            raise MustStop(f"{what}; --on-expired skip continues at {source_start} without them; raise the source's retention")
        log.warning("%s; continuing at %d", what, source_start)
        return source_start

    async def _bounds(self, cluster: Cluster, copy: PartitionCopy) -> tuple[int, int]:
        """The log start offset and the high watermark."""
        leader = self._topic(cluster, copy).by_partition.get(copy.partition.partition)
        if leader is None:
            raise Closed(f"{copy} of the {cluster.label} has no leader")
        where = {copy.partition: leader.node_id}
        start = await cluster.offsets(EARLIEST, where)
        end = await cluster.offsets(LATEST, where)
        return start[copy.partition], end[copy.partition]

    def _topic(self, cluster: Cluster, copy: PartitionCopy) -> TopicLeaders:
        topic = cluster.topics.get(copy.partition.topic)
        if topic is None:
            raise RequestFailed(f"topic {copy.partition.topic} of the {cluster.label}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    async def _mapped(self, copy: PartitionCopy, source_start: int, target_start: int, target_end: int) -> int:
        """The position by the map, which is brought up to date and stored."""
        source = self._source.cluster_id
        if copy.map is None:
            if target_start != target_end:
                raise MustStop(f"{copy} of the target has records that this mirror did not copy; delete the topic there")
            copy.new_map(source_start, target_end, self._map_topic.owner.data_producer_id)
            await self._map_topic.write(list(copy.unsaved(source)))
        elif target_end < copy.map.target_end:
            lost = copy.map.target_end - target_end
            log.warning("%s: the target lost its last %s; they are copied again", copy, amount(lost, "record"))
            if target_end < copy.map.target_start:
                raise MustStop(f"{copy} of the target ends at {target_end}, before the mirror's first record; delete the topic there")
            await self._map_topic.write(copy.truncated(source, target_end))
        elif target_end > copy.map.target_end:
            await self._compare(copy, target_start, target_end)
            await self._map_topic.write(list(copy.unsaved(source)))
        assert copy.map is not None
        return copy.map.position

    async def _compare(self, copy: PartitionCopy, target_start: int, target_end: int) -> None:
        """Extend the map by the records that the target has above it."""
        assert copy.map is not None
        first, count = copy.map.target_end, target_end - copy.map.target_end
        ours = _SourceRecords(self, copy)
        theirs = _TargetRecords(self, copy, max(first, target_start), target_end)
        append_time = self._rules(copy.partition.topic).append_time
        try:
            for offset in range(first, target_end):
                source_offset, record = await ours.next()
                found = await theirs.at(offset)
                if found is not None and not _same(record, found, append_time):
                    raise _Different(f"its record at {offset} is not the source's at {source_offset}")
                ours.copied(source_offset)
        except _Different as different:
            what = (f"{copy} of the target has {amount(count, 'record')} from offset {first} on that are not in the stored map, and "
                    f"{different}: the source was compacted or its records were deleted after they were copied")
            if not self._settings.accept_doubles:
                raise MustStop(f"{what}; --accept-doubles continues, and copies at most {count:,} of them a second time") from None
            log.warning("%s; at most %s of them are copied a second time", what, amount(count, "record"))
            copy.map.truncate(first)
            copy.skip_to(target_end, await new_producer_id(self._target))
            return
        ours.finish()
        log.info("%s: the target has %s above the stored map, all from this mirror; continuing after them", copy, amount(count, "record"))


class _Different(Exception):
    """The target's records are not those that would be copied."""


class _SourceRecords:
    """The records that would be copied from the map's position on, in order, which extends the map."""

    def __init__(self, resuming: Resuming, copy: PartitionCopy) -> None:
        assert copy.map is not None
        self._cluster = resuming._source
        self._topic = resuming._topic(resuming._source, copy)
        self._reactor = resuming._reactor
        self._rules = resuming._rules(copy.partition.topic)
        self._copy = copy
        self._map = copy.map
        self._position = self._map.position
        self._batches: list[Ready] = []
        self._records: Iterator[tuple[int, Record]] = iter(())
        self._ready: Ready | None = None
        self._left = 0

    async def next(self) -> tuple[int, Record]:
        """The next record with its offset; _Different if the source has no more."""
        while not self._left:
            if not self._batches:
                await self._fetch()
                continue
            self._ready = self._batches.pop(0)
            self._records, self._left = records_of(self._ready), self._ready.count
        self._left -= 1
        return next(self._records)

    def copied(self, source_offset: int) -> None:
        """The target has this record."""
        self._map.add(source_offset, 1)

    def finish(self) -> None:
        """All records of the target were found: what was dropped after the last one is done."""
        if self._ready is not None and not self._left:
            self._map.position = self._ready.position

    async def _fetch(self) -> None:
        index = self._copy.partition.partition
        data = await fetch(self._cluster, self._topic, index, self._position, 1 << 20, READ_COMMITTED)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _Different(f"the source does not have offset {self._position} any more")
        if data.error_code:
            raise RequestFailed(f"{self._copy} of the source", data.error_code)
        before = self._position
        self._batches, self._position = prepare(records_in(data), aborted_in(data), before, self._rules, Tally())
        if self._position == before:
            raise _Different(f"the source ends at offset {before}")


class _TargetRecords:
    """The records of the target in [position, end), which this mirror's producer has written."""

    def __init__(self, resuming: Resuming, copy: PartitionCopy, position: int, end: int) -> None:
        self._cluster = resuming._target
        self._topic = resuming._topic(resuming._target, copy)
        self._reactor = resuming._reactor
        self._copy = copy
        self._start = position
        self._position = position
        self._end = end
        self._records: list[Record] = []  # in reverse

    async def at(self, offset: int) -> Record | None:
        """The record at an offset, which is above those asked for before; None if the target has compacted or deleted it."""
        if offset < self._start:
            return None
        while not self._records and self._position <= offset:
            await self._fetch()
        if self._records and self._records[-1].offset == offset:
            return self._records.pop()
        return None

    async def _fetch(self) -> None:
        copy, before = self._copy, self._position
        data = await fetch(self._cluster, self._topic, copy.partition.partition, before, 1 << 20)
        if data.error_code:
            raise RequestFailed(f"{copy} of the target", data.error_code)
        found: list[Record] = []
        records = records_in(data)
        for at, header in entries.Scan(records, check_crc=True):
            if header.last_offset >= before:
                self._check(header)
                read = entries.read_records(records, at, header, UNPACKED_BYTES_MAX)
                found += [record for record in read if record.offset >= before]
                self._position = header.last_offset + 1
        self._records = found[::-1]
        if self._position == before:
            await deferLater(self._reactor, EMPTY_FETCH_RETRY_S)  # the high watermark has not moved there yet

    def _check(self, header: Any) -> None:
        copy = self._copy
        assert isinstance(header, BatchHeader)
        expected = copy.sequence_at(header.base_offset)
        if header.producer_id == copy.producer_id and header.base_sequence != expected:
            raise MustStop(
                f"{copy} of the target has records of this mirror in another order: the batch at offset {header.base_offset} has sequence "
                f"{header.base_sequence} instead of {expected}. The broker did not know the producer any more; delete the topic on the "
                "target to copy it again"
            )
        if header.producer_id != copy.producer_id:
            raise MustStop(
                f"{copy} of the target has records of another producer at offset {header.base_offset}; a copy must have no other "
                "producers. Stop them; delete the topic on the target to copy it again, or promote it to end the mirror"
            )


def _same(ours: Record, theirs: Record, append_time: bool) -> bool:
    return ours[2:] == theirs[2:] and (append_time or ours.timestamp == theirs.timestamp)
