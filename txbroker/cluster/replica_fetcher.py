"""Copies the partitions that one leader broker leads: a machine without I/O (Kafka's ReplicaFetcherThread).

The owner sends what `next_request` returns and passes the response to `answered`, or the failure to `failed`. One request is in flight at
a time, or two fetches, of which the second one asks for new partitions while the first one waits at the leader.

- A fetch names the epoch of this log's last record. Where the logs differ the leader answers with the point of divergence (KIP-595), and
  this log is truncated to it; several answers may be necessary (KIP-279). Such an answer changes neither the high watermark nor the log
  start (KAFKA-13141, KAFKA-14704).
- OFFSET_OUT_OF_RANGE is not yet a reason to remove anything: the leader's first offset is asked for, then its end. Only a log that ends
  before the leader's begins is emptied (KAFKA-2143).
- A partition with an error pauses for replica.fetch.backoff.ms; the others go on. The first pauses for a leader that does not know its role
  yet are shorter: it learns of it at about the same time. A throttled one that is not in sync pauses while the
  throttle's rate is exceeded (KIP-73). FENCED_LEADER_EPOCH for the epoch that this broker
  still has ends the fetching of the partition until the controller's next request (KAFKA-9654).
- What was asked in an older leader epoch, or at another offset, is ignored when it comes.

The cost of a request and of its response depends on the partitions that have changed, not on all that are followed: only those are looked
at that an answer, the controller or the follower's own retention has moved (`touch`), or whose pause is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from txbroker.cluster.follower_session import FollowerSession, Wanted
from txbroker.cluster.local_replica import CONSUMER
from txbroker.cluster.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from txbroker.cluster.partition import Partition
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.errors import BrokerError, ErrorCode, OutOfResources, StorageError, error_name
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData, ReplicaState
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

logger = logging.getLogger("txbroker.cluster.fetcher")

# Versions of Fetch
DIVERGENCE_VERSION = 12  # leaders answer with the point of divergence
NAMES_VERSION_MAX = 12  # later ones have topic ids instead of names
REPLICA_STATE_VERSION = 15  # with the replica's broker epoch


# Errors of a leader that does not know its role yet, and the first pauses then as shares of the back-off.
EARLY = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
EARLY_PAUSES = (0.03, 0.06, 0.12, 0.25, 0.5)


class FetcherSettings(NamedTuple):
    """Kafka's replica.fetch.wait.max.ms, min.bytes, max.bytes, response.max.bytes and backoff.ms."""

    wait_max_ms: int
    min_bytes: int
    partition_bytes: int
    response_bytes: int
    backoff_s: float


class Asked(NamedTuple):
    """A request, and the version to send it in; None: any."""

    request: FetchRequest | ListOffsetsRequest
    version: int | None


class _Step(Enum):
    """The next request for a partition."""

    FETCH = auto()
    FIND_START = auto()  # after OFFSET_OUT_OF_RANGE: the leader's first offset
    FIND_END = auto()  # the leader's log does not begin after this one's end: its end


@lazy_dataclass(slots=True)
class _Followed:
    partition: Partition
    leader_epoch: int
    step: _Step = _Step.FETCH
    resume_s: float = float("-inf")  # it pauses until then
    searched: bool = False  # the leader's offsets were found since the last successful fetch
    early: int = 0  # answers with one of `EARLY`
    in_sync: bool = False  # it has reached the leader's high watermark with the last response


class ReplicaFetcher:
    """The partitions of one leader. `broker_epoch`: this broker's, -1 before it is registered."""

    def __init__(
        self,
        broker_id: int,
        leader_id: int,
        settings: FetcherSettings,
        *,
        quota: ReplicationQuota,
        broker_epoch: Callable[[], int],
        monotonic_s: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._leader_id = leader_id
        self._settings = settings
        self._quota = quota
        self._broker_epoch = broker_epoch
        self._monotonic_s = monotonic_s
        self._now_ms = now_ms
        self._followed: dict[TopicPartition, _Followed] = {}
        self._touched: dict[TopicPartition, None] = {}  # what they need may have changed since the last request
        self._held: dict[TopicPartition, None] = {}  # they pause, or are throttled
        self._searching: dict[TopicPartition, None] = {}  # their step is not FETCH
        self._searched: dict[TopicPartition, tuple[int, int]] = {}  # leader epoch and offset, in the request in flight for offsets
        self._session = FollowerSession()
        self._resume_s = float("-inf")  # everything pauses until then

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Copy a partition, which follows this leader in its present epoch."""
        self._followed[partition.topic_partition] = _Followed(partition, partition.leader_epoch)
        self.touch(partition.topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer."""
        self._followed.pop(topic_partition, None)
        self.touch(topic_partition)

    def touch(self, topic_partition: TopicPartition) -> None:
        """The next request for this partition may differ from the last one: its log has moved, for example by retention."""
        self._touched[topic_partition] = None

    # Requests

    def next_request(self, fetch_version: int, *, overlaps: bool = False) -> Asked | None:
        """The next request; None while nothing is to be copied, or all of it pauses (`next_s`).

        Also None while a log is synced, if the leader has no room for a session: another request could wait there for the other
        partitions, and none for this one could overlap with it.

        `fetch_version`: the newest version of Fetch that both brokers have, DIVERGENCE_VERSION or later. `overlaps`: a fetch is in flight;
        None unless there are partitions that it does not ask for.
        """
        now_s = self._monotonic_s()
        if now_s < self._resume_s:
            return None
        self._look_at_changes(now_s)
        if overlaps:
            return self._fetch(fetch_version, overlaps=True) if self._session.may_overlap else None
        for step, timestamp in ((_Step.FIND_START, EARLIEST_TIMESTAMP), (_Step.FIND_END, LATEST_TIMESTAMP)):
            searched = [self._followed[name] for name in self._searching if self._followed[name].step is step]
            if searched:
                return Asked(self._offsets_request(searched, timestamp), None)
        if not len(self._session) or (self._session.is_refused and self._syncs()):
            return None
        return self._fetch(fetch_version)

    def _syncs(self) -> bool:
        """Whether the log of a partition is being synced."""
        held = (self._followed.get(name) for name in self._held)
        return any(one is not None and one.partition.log.must_flush for one in held)

    def _fetch(self, fetch_version: int, *, overlaps: bool = False) -> Asked:
        settings = self._settings
        version = fetch_version if self._session.uses_ids else min(fetch_version, NAMES_VERSION_MAX)
        new = version >= REPLICA_STATE_VERSION
        request = FetchRequest(
            replica_id=CONSUMER if new else self._broker_id,
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()) if new else ReplicaState(),
            max_wait_ms=settings.wait_max_ms if self._session.may_wait else 0,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes,
            topics=[],
        )
        self._session.fill(request, settings.partition_bytes, overlaps=overlaps)
        return Asked(request, version)

    def next_s(self) -> float | None:
        """When the first pause ends, monotonic; None if nothing pauses. A throttle is looked at again after the back-off."""
        now_s = self._monotonic_s()
        if now_s < self._resume_s:
            return self._resume_s if self._followed else None
        throttled_s = now_s + self._settings.backoff_s
        held = [one for name in self._held if (one := self._followed.get(name)) is not None]
        return min((one.resume_s if one.resume_s > now_s else throttled_s for one in held), default=None)

    def _look_at_changes(self, now_s: float) -> None:
        """Bring the session up to date with the partitions that may have changed."""
        touched, self._touched = {**self._touched, **self._held}, {}
        exceeded = bool(touched) and self._quota.is_exceeded
        for name in touched:
            self._held.pop(name, None)
            self._searching.pop(name, None)
            one = self._followed.get(name)
            if one is None:
                self._session.drop(name)
            elif self._pauses(one, now_s, exceeded=exceeded):
                self._session.drop(name)
                self._held[name] = None
            elif one.step is not _Step.FETCH:
                self._session.drop(name)
                self._searching[name] = None
            else:
                log = one.partition.log
                wanted = Wanted(log.topic_id, one.leader_epoch, log.log_end_offset, log.leader_epochs.latest, log.log_start_offset)
                self._session.want(name, wanted)

    def _pauses(self, one: _Followed, now_s: float, *, exceeded: bool) -> bool:
        """Whether nothing is to be asked for a partition now: after an error, while it is throttled, and while its log is synced."""
        partition = one.partition
        return one.resume_s > now_s or partition.log.must_flush or (exceeded and not one.in_sync and self._quota.covers(partition))

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition pauses."""
        return topic_partition in self._held

    def _offsets_request(self, searched: list[_Followed], timestamp: int) -> ListOffsetsRequest:
        self._searched = {one.partition.topic_partition: (one.leader_epoch, one.partition.log.log_end_offset) for one in searched}
        topics: dict[str, ListOffsetsTopic] = {}
        for one in searched:
            name = one.partition.topic_partition
            topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=name.partition, current_leader_epoch=one.leader_epoch, timestamp=timestamp)
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    # Responses

    def failed(self) -> None:
        """There is no response to the request in flight."""
        self._session.reset()
        self._pause_all()

    def answered(self, response: FetchResponse | ListOffsetsResponse) -> None:
        """The response to the request in flight."""
        if isinstance(response, ListOffsetsResponse):
            for topic in response.topics:
                for found in topic.partitions:
                    self._found(TopicPartition(topic.name, found.partition_index), found.error_code, found.offset)
            return
        if response.error_code:
            code = error_name(response.error_code)
            logger.info("broker %d answers a fetch with %s; the next one begins a new session", self._leader_id, code)
            if response.error_code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._pause_all()
            self._session.reset()
            return
        session = self._session
        results = [
            (name, asked, data)
            for topic in response.responses
            for data in topic.partitions
            if (name := session.name_of(topic.topic, topic.topic_id, data.partition_index)) is not None
            and (asked := session.asked(name)) is not None
        ]
        session.answered(response.session_id)
        for name, asked, data in results:
            one = self._current(name, (asked.leader_epoch, asked.fetch_offset))
            if one is not None:
                self._fetched(one, data)
                self.touch(name)

    def _pause_all(self) -> None:
        self._resume_s = self._monotonic_s() + self._settings.backoff_s

    def _current(self, name: TopicPartition, asked: tuple[int, int] | None) -> _Followed | None:
        """The partition of an answer, if what was `asked`, a leader epoch and an offset, is still what it needs."""
        one = self._followed.get(name)
        if one is None:
            return None
        partition = one.partition
        state = partition.state
        if partition.is_leader or state.leader_epoch != one.leader_epoch or state.leader != self._leader_id:
            return None
        return one if asked == (one.leader_epoch, partition.log.log_end_offset) else None

    def _fetched(self, one: _Followed, data: PartitionData) -> None:
        partition = one.partition
        if data.error_code:
            self._refused(one, data.error_code)
            return
        try:
            if data.diverging_epoch.epoch != -1 or data.diverging_epoch.end_offset != -1:
                self._truncate(one, divergence(partition, data.diverging_epoch))
                return
            records = data.records
            assert records is None or isinstance(records, bytes | memoryview)
            partition.replicate(
                memoryview(records or b""),
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
                now_ms=self._now_ms(),
            )
            one.searched = False
            one.in_sync = partition.log.log_end_offset >= data.high_watermark
            if records and self._quota.covers(partition):
                self._quota.record(len(records))
        except StorageError as error:
            self._disk_failed(one, error)
        except BrokerError as error:
            logger.error("%s: what broker %d sent for offset %d is refused: %s", partition.topic_partition, self._leader_id,
                         partition.log.log_end_offset, error)  # fmt: skip
            self._pause(one)

    def _refused(self, one: _Followed, error_code: int) -> None:
        name = one.partition.topic_partition
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if one.searched:
                # The leader does not know this log's last epoch: below the high watermark both are equal.
                self._truncate(one, one.partition.high_watermark)
                self._pause(one)
            else:
                one.step = _Step.FIND_START
        elif error_code == ErrorCode.FENCED_LEADER_EPOCH:
            logger.info("%s: broker %d has a newer leader epoch than %d; waiting for the controller", name, self._leader_id,
                        one.leader_epoch)  # fmt: skip
            self.forget(name)
        elif error_code in EARLY and one.early < len(EARLY_PAUSES):
            self._pause(one, EARLY_PAUSES[one.early])
            one.early += 1
        else:
            if error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH):
                logger.warning("%s: broker %d answers a fetch with %s", name, self._leader_id, error_name(error_code))
            self._pause(one)

    def _found(self, name: TopicPartition, error_code: int, offset: int) -> None:
        """The leader's first offset, or its end."""
        one = self._current(name, self._searched.get(name))
        if one is None:
            return
        self.touch(name)
        if error_code or offset < 0:
            self._pause(one)
            return
        own_end = one.partition.log.log_end_offset
        if one.step is _Step.FIND_START and own_end >= offset:
            one.step = _Step.FIND_END
            return
        find_start, one.step, one.searched = one.step is _Step.FIND_START, _Step.FETCH, True
        if find_start:
            try:
                one.partition.restart_at(offset, self._now_ms())
            except StorageError as error:
                self._disk_failed(one, error)
                return
            if one.partition.log.log_end_offset != offset:
                one.step, one.searched = _Step.FIND_START, False  # not all at once
        elif offset < own_end:
            self._truncate(one, offset)
            if one.partition.log.log_end_offset > offset:
                one.step, one.searched = _Step.FIND_END, False

    def _truncate(self, one: _Followed, offset: int) -> None:
        try:
            one.partition.truncate_to(offset)
        except StorageError as error:
            self._disk_failed(one, error)
            return
        if one.partition.log.names_due:
            self._pause(one, EARLY_PAUSES[0])  # it is synced, or a cleaned segment replaces others, before more is removed

    def _disk_failed(self, one: _Followed, error: StorageError) -> None:
        if isinstance(error, OutOfResources):
            one.searched = False
            self._pause(one)  # the condition passes, as a full disk does: the log is as it was
        else:
            self.forget(one.partition.topic_partition)  # its directory goes offline

    def _pause(self, one: _Followed, share: float = 1.0) -> None:
        one.resume_s = self._monotonic_s() + share * self._settings.backoff_s


def divergence(partition: Partition, leader: EpochEndOffset) -> int:
    """The offset to which a log is truncated: `leader` is the leader's largest epoch up to this log's last, and where it ends (KIP-279)."""
    log = partition.log
    if leader.end_offset < 0:
        return partition.high_watermark
    own = log.end_offset_for_epoch(leader.epoch)
    if own.epoch < 0:
        offset = leader.end_offset  # all epochs of this log are newer: none is known to be equal
    elif own.epoch < leader.epoch:
        offset = own.end_offset  # the leader is asked again, about an older epoch
    else:
        offset = min(own.end_offset, leader.end_offset)
    return min(offset, log.log_end_offset)
