"""The mirror from start to end: it finds topics, copies their partitions, stores the offset maps, and copies groups' offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.task import LoopingCall, deferLater

from txbroker.client.client_errors import ClientError, RequestFailed
from txbroker.client.offset_requests import LATEST
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.mirror.cluster import READ_COMMITTED, Cluster
from txbroker.mirror.group_offsets import GroupOffsets
from txbroker.mirror.map_topic import Fenced, MapTopic
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.mirror.reading import SourceReader
from txbroker.mirror.resume import MustStop, Resuming
from txbroker.mirror.settings import MAP_TOPIC, Environment, MirrorSettings
from txbroker.mirror.topics import Refused, Topics
from txbroker.mirror.writing import TargetWriter
from txbroker.names import amount

log = logging.getLogger("txbroker.mirror")

BACKOFF_S, BACKOFF_S_MAX = 0.2, 30.0
RESUMED_AT_ONCE = 20
CAUGHT_UP_CHECK_S = 0.1
LAST_ANSWERS_S = 10.0
ATTEMPTS_UNTIL_CAUGHT_UP = 10  # of one partition, in about two minutes: then --until-caught-up ends without it
LAST_ANSWERS_CHECK_S = 0.02
# What to do about errors of the target that do not pass by themselves.
_ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic on the target",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic on the target",
    ErrorCode.INVALID_TIMESTAMP: "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic on the target",
    ErrorCode.NOT_ENOUGH_REPLICAS: "wait for replicas to come back, or lower min.insync.replicas on the target",
    ErrorCode.INVALID_RECORD: "compare cleanup.policy on both sides, as a compacted topic takes no record without a key; if the batch is "
    "damaged on the source, delete the source's records up to and including it (txbroker delete-records)",
    ErrorCode.POLICY_VIOLATION: "see `txbroker mirror promote --help`",
}


class MirrorFailed(Exception):
    """The mirror cannot begin, or cannot go on. The text says why and what to do."""


class Mirror:
    """`run` once. `stop` ends it, after what is in flight."""

    def __init__(self, settings: MirrorSettings, environment: Environment) -> None:
        self.source = Cluster("source", settings.source, environment.reactor, environment.chance, settings.source_security)
        self.target = Cluster("target", settings.target, environment.reactor, environment.chance, settings.target_security)
        self.settings = settings
        self._environment = environment
        self._reactor = environment.reactor
        self._map_topic = MapTopic(self.target, settings.name, settings.run_id, environment, settings.replication_factor)
        self.topics = Topics(self.source, self.target, self._map_topic, settings, environment.reactor)
        topics = self.topics
        self.reader = SourceReader(self.source, settings, environment, topics.partitions, topics.rules, self._taken, self._failed)
        self.writer = TargetWriter(self.target, settings, self.reader.wake, self._failed, self._settled)
        self._resuming = Resuming(self.source, self.target, self._map_topic, settings, self.topics.rules, environment.reactor)
        self.groups: GroupOffsets | None = None
        if settings.groups is not None:
            self.groups = GroupOffsets(self.source, self.target, settings.groups, topics.partitions, environment.reactor)
        self._resume_few = DeferredSemaphore(RESUMED_AT_ONCE)
        self._resumes: set[PartitionCopy] = set()
        self._logged: dict[PartitionCopy, str] = {}
        self._ended: Deferred[None] = Deferred()
        self._stopping = False
        self._loops: list[LoopingCall] = []

    async def run(self, progress: Callable[[], None]) -> None:
        """Copy until `stop`, or with until_caught_up until everything of the beginning is copied; MirrorFailed, ClientError.

        `progress` is called every progress_every_s.
        """
        try:
            await self._begin()
            self._every(self.settings.checkpoint_every_s, self._checkpoint)
            self._every(self.settings.discover_every_s, self._discover)
            if self.groups is not None:
                self._every(self.settings.groups_every_s, self._copy_groups)
            self._every(self.settings.progress_every_s, progress)
            if self.settings.until_caught_up:
                self._every(CAUGHT_UP_CHECK_S, self._end_if_caught_up)
            await self._ended
            await self._end()
        except (Refused, CorruptRecords) as error:
            unreadable = f"topic {MAP_TOPIC} is not readable: {error}; delete it and the copies, and copy again"
            raise MirrorFailed(str(error) if isinstance(error, Refused) else unreadable) from None
        finally:
            self._stopping = True
            for loop in self._loops:
                if loop.running:
                    loop.stop()
            self.reader.stop()
            self.source.close()
            self.target.close()

    def stop(self) -> None:
        """End after what is in flight; may be called several times."""
        self._stopping = True
        if not self._ended.called:
            self._ended.callback(None)

    def fail(self, why: str) -> None:
        """End with MirrorFailed."""
        self._stopping = True
        if not self._ended.called:
            self._ended.errback(MirrorFailed(why))

    @property
    def stopped(self) -> list[PartitionCopy]:
        """Partitions that cannot be copied any further."""
        return [copy for copy in self.topics.partitions.values() if copy.state is State.STOPPED]

    # --- begin and end ---

    async def _begin(self) -> None:
        await self.source.begin()
        await self.target.begin()
        cluster_id = self.source.cluster_id
        if cluster_id == self.target.cluster_id:
            shown = cluster_id or "neither has a cluster id"
            raise MirrorFailed(f"--from and --to are the same cluster ({shown}); a topic is not copied onto itself")
        await self._map_topic.claim(self.source.cluster_id)
        self._map_topic.patient(True)
        added = await self.topics.discover()
        for name in self.settings.topics:
            if name not in self.topics.marks:
                missing = f"topic {name} does not exist on the source; see `txbroker topics --list`"
                raise MirrorFailed(self.topics.refused.get(name, missing))
        await self.source.patiently(lambda: self._take_snapshot(added))
        log.info(
            "copying %s of %s from cluster %s to cluster %s",
            amount(len(added), "partition"), amount(len(self.topics.marks), "topic"), self.source.cluster_id, self.target.cluster_id,
        )  # fmt: skip
        self._resume_all(added)

    async def _take_snapshot(self, copies: Collection[PartitionCopy]) -> None:
        leaders = {}
        for copy in copies:
            leader = self.source.topics[copy.partition.topic].by_partition[copy.partition.partition]
            if leader is None:
                raise RequestFailed(f"{copy} of the source", ErrorCode.LEADER_NOT_AVAILABLE)
            leaders[copy.partition] = leader.node_id
        ends = await self.source.offsets(LATEST, leaders, READ_COMMITTED)
        for copy in copies:
            copy.snapshot = copy.source_end = ends[copy.partition]

    async def _end(self) -> None:
        """Wait for what is in flight, then store everything."""
        self.reader.stop()
        deadline_s = self._reactor.seconds() + LAST_ANSWERS_S
        copies = self.topics.partitions.values()
        while any(copy.in_flight for copy in copies) and self._reactor.seconds() < deadline_s:
            await deferLater(self._reactor, LAST_ANSWERS_CHECK_S)
        for loop in self._loops:
            if loop.running:
                loop.stop()
        self._map_topic.patient(False)
        await self._store()
        if self.groups is not None:
            await self._copy_groups()

    def _end_if_caught_up(self) -> None:
        copies = self.topics.partitions.values()
        if all(copy.state is State.STOPPED or copy.snapshot is None or copy.caught_up for copy in copies):
            self.stop()

    # --- loops ---

    def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        def run() -> Any:
            done = work()
            return Deferred.fromCoroutine(done) if isinstance(done, Coroutine) else done

        loop = LoopingCall(run)
        loop.clock = self._reactor
        self._loops.append(loop)
        loop.start(seconds, now=False).addErrback(self._broken)

    def _broken(self, failure: Any) -> None:
        log.critical("internal error: %s", failure.getTraceback())
        self.fail(f"internal error: {failure.getErrorMessage()}; the log has the traceback, please report it")

    async def _checkpoint(self) -> None:
        if self._stopping:
            return
        try:
            await self._store()
        except ClientError as error:
            self.fail(str(error))

    async def _store(self) -> None:
        """Store what has changed in the offset maps; ClientError, also if another run has begun."""
        source = self.source.cluster_id
        pairs = [pair for copy in self.topics.partitions.values() for pair in copy.unsaved(source)]
        if pairs:
            await self._map_topic.write(pairs)

    async def _discover(self) -> None:
        if self._stopping:
            return
        try:
            added = await self.topics.discover()
        except (ClientError, CorruptRecords) as error:
            log.warning("topics cannot be compared now: %s; trying again", error)
            return
        for copy, problem in self.topics.stop_changed().items():
            self._stop(copy, problem)
        self._resume_all(added)

    async def _copy_groups(self) -> None:
        assert self.groups is not None
        try:
            await self.groups.copy()
        except ClientError as error:
            log.warning("the offsets of groups cannot be copied now: %s; trying again", error)

    # --- partitions ---

    def _taken(self, copies: Collection[PartitionCopy]) -> None:
        self.writer.add(copies)

    def _resume_all(self, copies: Collection[PartitionCopy]) -> None:
        for copy in copies:
            self._resumes.add(copy)
            self._resume_few.run(self._resume, copy).addErrback(self._broken)

    async def _resume(self, copy: PartitionCopy) -> None:
        self._resumes.discard(copy)
        if self._stopping or copy.state is State.STOPPED:
            return
        try:
            if copy.failures:
                await self.source.refresh()
                await self.target.refresh()
            problem = self.topics.changed(copy.partition.topic)
            if problem:
                raise MustStop(problem)
            await self._resuming.resume(copy)
            if not copy.failures:
                self._logged.pop(copy, None)
        except MustStop as stop:
            self._stop(copy, str(stop))
        except Fenced as fenced:
            self.fail(str(fenced))
        except (ClientError, BrokerError) as error:
            self._failed(copy, None, f"{copy}: {error}")
        else:
            self.reader.wake()

    def _failed(self, copy: PartitionCopy, code: int | None, text: str) -> None:
        """Pause a partition; it is resumed when its requests are answered and some time has passed."""
        if copy.state is State.STOPPED:
            return
        if code in _ADVICE:
            text += f"; {_ADVICE[ErrorCode(code)]}"
        copy.failed(text)
        if self.settings.until_caught_up and copy.failures > ATTEMPTS_UNTIL_CAUGHT_UP:
            self._stop(copy, text)
            return
        if code != ErrorCode.NETWORK_EXCEPTION and self._logged.get(copy) != text:
            self._logged[copy] = text
            log.warning("%s; pausing this partition and retrying; the other partitions continue", text)
        if not copy.in_flight:
            self._settled(copy)

    def _settled(self, copy: PartitionCopy) -> None:
        if copy in self._resumes or copy.state is not State.PAUSED:
            return
        self._resumes.add(copy)
        delay_s = min(BACKOFF_S * 2 ** min(copy.failures - 1, 10), BACKOFF_S_MAX)
        self._reactor.callLater(delay_s, self._resume_all, [copy])

    def _stop(self, copy: PartitionCopy, problem: str) -> None:
        copy.stop(problem)
        log.error("%s; this partition is stopped", problem)


