"""Batches of clients that are written at once."""

from __future__ import annotations

import struct

from txbroker.errors import BrokerError
from txbroker.log.log_results import Appended
from txbroker.log.segment import Written
from txbroker.log.validate import Validated
from txbroker.wire.batch import LOG_OVERHEAD

_STAMP = struct.Struct(">qii").pack_into  # offset, length, leader epoch: one call instead of two around the length


class JoinedBatches:
    """Validated batches that follow each other in one segment, and the results of the appends, which hold once they are written.

    `results` has one element for each batch so far, also for those that were refused.
    """

    __slots__ = ("_places", "batches", "entries", "next_offset", "results", "size")

    def __init__(self, next_offset: int) -> None:
        self.results: list[Appended | BrokerError] = []
        self.next_offset = next_offset
        self.written()

    def add(self, validated: Validated, leader_epoch: int, log_start_offset: int) -> None:
        """Stamp a batch with the next offset and its leader epoch, to be written with the others."""
        batch, header, append_time_ms = validated
        first_offset = self.next_offset
        last_offset = first_offset + header.last_offset_delta
        size = header.size
        _STAMP(batch, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        self._places.append(len(self.results))
        self.results.append(Appended(first_offset, last_offset, append_time_ms, log_start_offset))
        self.batches.append(batch)
        self.entries.append((size, first_offset, last_offset, header.max_timestamp))
        self.size += size
        self.next_offset = last_offset + 1

    def written(self) -> None:
        """The batches so far were written, or there are none."""
        self.batches: list[memoryview] = []
        self.entries: list[Written] = []
        self._places: list[int] = []
        self.size = 0

    def failed(self, error: BrokerError, count: int) -> None:
        """The batches since the last write, and the others up to `count`, could not be written."""
        for place in self._places:
            self.results[place] = error
        self.results += [error] * (count - len(self.results))
