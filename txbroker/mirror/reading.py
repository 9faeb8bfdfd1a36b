"""Fetches from the source: one loop for each broker, with one request in flight to it.

A request has the partitions with room in memory. While any of them is behind the source's end the broker answers at once; otherwise it
waits for new records, unless a partition has no room: then the loop waits for the target first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from txbroker.client.client_errors import LOST, ClientError
from txbroker.errors import BrokerError, ErrorCode, error_name
from txbroker.log.aborted_transactions import aborted_in
from txbroker.mirror.batches import Rules, prepare
from txbroker.mirror.cluster import DATA, READ_COMMITTED, Cluster
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.mirror.requests import Wanted, fetch_request, fetched, records_in
from txbroker.mirror.settings import Environment, MirrorSettings
from txbroker.names import TopicPartition
from txbroker.wire.messages.fetch import FetchResponse, PartitionData

log = logging.getLogger("txbroker.mirror")

RETRY_S = 0.5
PARTITIONS_MAX = 500  # in a request; the others come next
BUFFERED_REQUESTS = 2  # of one partition's batches, in fetches of the largest size


class SourceReader:
    """`taken` is called for partitions with new batches, `failed` with a partition, an error code or None, and a text."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MirrorSettings,
        environment: Environment,
        partitions: Mapping[TopicPartition, PartitionCopy],
        rules: Callable[[str], Rules],
        taken: Callable[[Collection[PartitionCopy]], None],
        failed: Callable[[PartitionCopy, int | None, str], None],
    ) -> None:
        self.problem = ""
        self._cluster = cluster
        self._settings = settings
        self._environment = environment
        self._partitions = partitions
        self._rules = rules
        self._taken = taken
        self._failed = failed
        self._idle: dict[int, Deferred[None]] = {}
        self._loops: dict[int, Deferred[None]] = {}
        self._stopped = False
        self._fetching = 0
        self._turn = 0

    def wake(self) -> None:
        """Partitions have begun, or have room: continue. Brokers that lead one have a loop from now on."""
        for node in self._cluster.brokers:
            if node not in self._loops and not self._stopped:
                self._loops[node] = Deferred.fromCoroutine(self._loop(node))
        idle, self._idle = self._idle, {}
        for each in idle.values():
            each.callback(None)

    def stop(self) -> None:
        """Fetch no more."""
        self._stopped = True
        for loop in self._loops.values():
            loop.addErrback(lambda failure: failure.trap(CancelledError))
            loop.cancel()

    async def _loop(self, node: int) -> None:
        while not self._stopped:
            partitions, wait_ms, bytes_max = self._wanted(node)
            if not partitions:
                idle = self._idle[node] = Deferred()
                await idle
                continue
            try:
                await self._fetch(node, partitions, wait_ms, bytes_max)
            except ClientError as error:
                if not self.problem:
                    log.warning("%s; trying again", error)
                self.problem = str(error)
                await deferLater(self._environment.reactor, RETRY_S)
                await self._refresh()
            except CancelledError:
                raise
            except Exception:
                log.exception("internal error while fetching")
                for copy in partitions:
                    self._failed(copy, None, "internal error while fetching; see the log")
                await deferLater(self._environment.reactor, RETRY_S)

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh()
        except LOST as lost:
            log.debug("%s", lost)

    def _wanted(self, node: int) -> tuple[list[PartitionCopy], int, int]:
        """The partitions to fetch from this broker, how long it may wait, and at most how many bytes."""
        settings = self._settings
        buffered = sum(copy.buffered for copy in self._partitions.values())
        free = settings.buffer_bytes - buffered - self._fetching
        if free <= 0:
            return [], 0, 0
        ready: list[PartitionCopy] = []
        blocked = behind = False
        for copy in self._partitions.values():
            if copy.state is not State.COPYING or copy.fetching or self._leader(copy) != node:
                continue
            if copy.buffered >= BUFFERED_REQUESTS * settings.partition_bytes:
                blocked = True
            else:
                ready.append(copy)
                behind = behind or copy.position < copy.source_end
        if not behind and blocked:
            return [], 0, 0
        if behind and len(ready) > PARTITIONS_MAX:
            ready = [copy for copy in ready if copy.position < copy.source_end] or ready
        self._turn += 1
        turn = self._turn % max(len(ready), 1)
        ready = (ready[turn:] + ready[:turn])[:PARTITIONS_MAX]
        return ready, 0 if behind else round(settings.fetch_wait_s * 1000), min(settings.fetch_bytes, free)

    def _leader(self, copy: PartitionCopy) -> int | None:
        topic = self._cluster.topics.get(copy.partition.topic)
        leader = None if topic is None else topic.by_partition.get(copy.partition.partition)
        return None if leader is None else leader.node_id

    async def _fetch(self, node: int, partitions: list[PartitionCopy], wait_ms: int, bytes_max: int) -> None:
        topics = self._cluster.topics
        size = self._settings.partition_bytes
        wanted = [Wanted(topics[copy.partition.topic], copy.partition.partition, copy.position, size) for copy in partitions]
        ids = {copy.partition.topic: topics[copy.partition.topic].topic_id for copy in partitions}
        asked = [(copy, copy.position, copy.generation) for copy in partitions]
        self._fetching += bytes_max
        for copy in partitions:
            copy.fetching = True
        try:
            request = fetch_request(wanted, READ_COMMITTED, wait_ms, bytes_max)
            response: FetchResponse = await self._cluster.ask(request, node, DATA)
        finally:
            self._fetching -= bytes_max
            for copy in partitions:
                copy.fetching = False
        self._reachable()
        found = fetched(response)
        taken: list[PartitionCopy] = []
        for copy, position, generation in asked:
            if copy.generation != generation or copy.position != position or copy.state is not State.COPYING:
                continue
            name, index = copy.partition
            data = found.get((name, index)) or found.get((ids[name], index))
            if response.error_code or data is None:
                code = response.error_code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._failed(copy, code, f"{copy} cannot be fetched from the source: {error_name(code)}")
            elif self._take(copy, data):
                taken.append(copy)
        if taken:
            self._taken(taken)

    def _reachable(self) -> None:
        if self.problem:
            log.info("the source answers again")
            self.problem = ""

    def _take(self, copy: PartitionCopy, data: PartitionData) -> bool:
        """Take the batches of a response; whether there are any."""
        if data.error_code:
            self._failed(copy, data.error_code, f"{copy} cannot be fetched from the source: {error_name(data.error_code)}")
            return False
        copy.high_watermark = data.high_watermark
        copy.source_end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        copy.source_start = data.log_start_offset
        try:
            batches, position = prepare(records_in(data), aborted_in(data), copy.position, self._rules(copy.partition.topic), copy.tally)
        except BrokerError as error:
            self._failed(copy, None, f"{copy} at source offset {copy.position}: {error.message}; see `txbroker log verify` of its files")
            return False
        copy.take(batches, position)
        return True
