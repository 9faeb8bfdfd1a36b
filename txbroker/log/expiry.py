"""The first record of a log that has not expired, for `retention.precise` and for the metric of the retention lag.

Only timestamps of records count. A record has expired when its timestamp is more than retention.ms ago, like a segment in Kafka. The search
is for the first record, in offset order, that has not expired:

- Records out of order: all before it have expired. Older records after it stay until the log's start has passed it.
- Future timestamps keep the start until they have expired, as they keep a segment, and all later segments, in Kafka.
- Records without a timestamp (-1) are as old as the record before them in their segment, or as the next one if there is none before. A
  segment without any timestamp (old message formats) counts as a whole, by the time its file was written: Kafka's rule, and the
  only use of a file's time.
- A batch that cannot be read, because it is damaged or too large decompressed, stops the search: it is deleted with its segment.

A search uses the indexes in the thread of the logs (`plan`); a worker reads headers from there on, and the one batch with the record
(`Search.run`). It reads about one index interval, except when timestamps were below the largest one for a long time and have just
reached it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txbroker.errors import BrokerError, StorageError
from txbroker.log.disk import File
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import LOOK_CHUNK_BYTES, Entry, Walk
from txbroker.log.segment import NO_TIMESTAMP, Segment
from txbroker.log.time_lookup import first_record

ANY_TIME = -1


class First(NamedTuple):
    """A record, and the timestamp by which it expires (milliseconds; -1: not known)."""

    timestamp: int
    offset: int


class Search(NamedTuple):
    """A search through one segment, for a worker.

    `known_up_to`: the record has a larger offset. `timed`: records up to that offset have timestamps. `held_ms`: the timestamp by which
    the segment expires if it cannot be read. `then`: the base offset from which the search continues if it finds nothing.
    """

    file: File
    position: int
    end: int
    timestamp: int
    offset_min: int
    known_up_to: int
    timed: bool
    held_ms: int
    bytes_max: int
    then: int

    def run(self) -> First | None:
        """In a worker: the first record of the segment at `offset_min` or above that is of `timestamp` or later. StorageError."""
        walk = Walk(self.file, self.position, self.end, chunk_bytes=LOOK_CHUNK_BYTES)
        timed, untimed, next_offset, begun = self.timed, None, self.offset_min, False
        for entry in walk:
            header = entry.header
            if not begun and self.position and first_offset_of(header) > self.known_up_to:
                break
            begun = True
            if header.last_offset < self.offset_min:
                continue
            if header.max_timestamp >= self.timestamp:
                found = self._first(entry, next_offset)
                if found is not None:
                    return First(found.timestamp, found.offset if untimed is None else untimed)
            if header.max_timestamp >= 0:
                timed, untimed = True, None
            elif not timed and untimed is None:
                untimed = next_offset
            next_offset = header.last_offset + 1
        if self.position and not begun:  # the index is damaged: the next reader of the segment rebuilds it
            return self._replace(position=0, timed=False).run()
        if walk.problem:
            return First(self.held_ms, next_offset if untimed is None else untimed)
        return None

    def _first(self, entry: Entry, next_offset: int) -> First | None:
        try:
            found = first_record(entry, self.timestamp, self.offset_min, self.bytes_max)
        except StorageError:
            raise
        except BrokerError:
            return First(entry.header.max_timestamp, next_offset)
        return None if found is None else First(found.timestamp, max(found.offset, self.offset_min))


def plan(segments: Sequence[Segment], timestamp: int, offset_min: int, bytes_max: int, *, begin: int = 0) -> Search | First | None:
    """Where to search for the first record at `offset_min` or above that is of `timestamp` or later, by the indexes.

    `begin`: the base offset of the first segment to search, from `Search.then`. None: there is no such record.
    """
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if segment.base_offset < begin or (end is not None and end <= offset_min) or not segment.size:
            continue
        held_ms = segment.largest_timestamp_ms
        if timestamp != ANY_TIME and held_ms < timestamp:
            continue
        if segment.max_timestamp[0] == NO_TIMESTAMP:
            return First(held_ms, max(segment.base_offset, offset_min))
        indexed = segment.time_index.lookup(timestamp)
        known_up_to = max(indexed, offset_min)
        return Search(
            file=segment.file,
            position=segment.offset_index.lookup(known_up_to),
            end=segment.size,
            timestamp=timestamp,
            offset_min=max(segment.base_offset, offset_min),
            known_up_to=known_up_to,
            timed=indexed > segment.base_offset,
            held_ms=held_ms,
            bytes_max=bytes_max,
            then=segment.base_offset + 1,
        )
    return None
