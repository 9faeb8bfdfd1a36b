"""Removes offsets, and the groups that have none left: on request, those of deleted topics, and expired ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from twisted.internet.defer import Deferred, gatherResults, succeed

from txbroker.clock import Clock, DelayedCall
from txbroker.coordinators.state_log import Pair
from txbroker.errors import ErrorCode
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_records import group_key
from txbroker.groups.group_states import GroupState
from txbroker.groups.hosted_groups import HostedGroup, HostedGroups
from txbroker.groups.offsets_expiry import expired
from txbroker.groups.writer import Writer
from txbroker.names import TopicPartition, amount

log = logging.getLogger("txbroker.groups")

TOMBSTONES_PER_BATCH = 1_000  # about 60 KB, below any max.message.bytes that is in use


class OffsetRemoval:
    """Writes tombstones. A group is dropped from memory when the log has nothing of it."""

    def __init__(self, clock: Clock, now_ms: Callable[[], int], config: GroupConfig, hosted: HostedGroups, writer: Writer) -> None:
        """`now_ms`: the wall clock, which expires offsets; `clock` says when to look for them."""
        self._clock = clock
        self._now_ms = now_ms
        self._config = config
        self._hosted = hosted
        self._writer = writer
        self._expiry: DelayedCall | None = None

    def start(self) -> None:
        """Start to expire offsets, every offsets.retention.check.interval.ms."""
        self._expiry = self._clock.callLater(self._config.offsets_retention_check_interval_ms / 1000, self._expire)

    def stop(self) -> None:
        """Expire no more."""
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()

    def remove(self, hosted: HostedGroup, partitions: Sequence[TopicPartition], group_too: bool = False) -> Deferred[ErrorCode]:
        """Write tombstones for offsets, and with `group_too` for the group, which is then dropped if it is unused."""
        # A group that never had members has no record of its own.
        tombstone: list[Pair] = [(group_key(hosted.group.group_id), None)] if group_too and hosted.group.generation > 0 else []
        writes = []
        rest = iter(partitions)
        while chunk := list(islice(rest, TOMBSTONES_PER_BATCH)):
            writes.append(self._writer.write_offsets(hosted, hosted.offsets.begin(dict.fromkeys(chunk))))
        if tombstone:
            writes.append(self._writer.write_offsets(hosted, hosted.offsets.begin({}), tombstone))

        def finish(errors: list[ErrorCode]) -> ErrorCode:
            error = next((e for e in errors if e), ErrorCode.NONE)
            if group_too and not error and _is_droppable(hosted):
                self._hosted.forget(hosted)
            return error

        return gatherResults(writes, consumeErrors=True).addCallback(finish)

    def forget_if_unused(self, hosted: HostedGroup) -> None:
        """Drop a group of which the log has nothing. One that had members has a record, and its expiry needs a tombstone."""
        if hosted.group.generation == 0 and _is_droppable(hosted):
            self._hosted.forget(hosted)

    def forget_topics(self, among: Iterable[HostedGroup], topics: frozenset[str]) -> Deferred[None]:
        """Remove the offsets of deleted topics."""
        removals = []
        for hosted in among:
            partitions = [p for p in hosted.offsets.partitions() if p.topic in topics]
            if partitions:
                log.info("group %s: removing %s of deleted topics", hosted.group.group_id, amount(len(partitions), "offset"))
                removals.append(self._clean(hosted, partitions))
        return gatherResults(removals, consumeErrors=True).addCallback(lambda _: None)

    def _clean(self, hosted: HostedGroup, partitions: Sequence[TopicPartition]) -> Deferred[ErrorCode]:
        """Remove offsets, and the group too if it is then unused."""
        empty = hosted.group.state is GroupState.EMPTY and not hosted.group.pending
        return self.remove(hosted, partitions, group_too=empty and hosted.offsets.would_be_unused_without(len(partitions)))

    def _expire(self) -> None:
        self.start()
        self.expire_now()

    def expire_now(self) -> Deferred[ErrorCode]:
        """Remove expired offsets, and groups that are then unused. Fires with the first error when their tombstones are written."""
        now_ms = self._now_ms()
        removals: list[Deferred[ErrorCode]] = []
        for hosted in self._hosted:
            try:
                removals.append(self._expire_group(hosted, now_ms))
            except Exception:
                log.exception("group %s: internal error while expiring its offsets; trying again at the next check", hosted.group.group_id)
        return gatherResults(removals, consumeErrors=True).addCallback(lambda errors: next((e for e in errors if e), ErrorCode.NONE))

    def _expire_group(self, hosted: HostedGroup, now_ms: int) -> Deferred[ErrorCode]:
        partitions = expired(hosted.group, hosted.offsets, now_ms, self._config.offsets_retention_ms)
        if partitions:
            log.info("group %s: removing %s", hosted.group.group_id, amount(len(partitions), "expired offset"))
        return self._clean(hosted, partitions) if partitions or hosted.is_unused else succeed(ErrorCode.NONE)


def _is_droppable(hosted: HostedGroup) -> bool:
    return hosted.is_unused and hosted.group.state is GroupState.EMPTY
