"""A follower's half of a fetch session (KIP-227; Kafka's FetchSessionHandler): requests name only what has changed since the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txbroker.names import TopicPartition
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

_NEW_SESSION = 0
_EPOCH_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """The request for one partition."""

    topic_id: bytes
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowerSession:
    """The partitions of the session with the last request for each; after `reset` the next request names all of them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """The leader does not know the session, or it is not known what the leader knows: after every failure of a request."""
        self._session_id = _NEW_SESSION
        self._epoch = 0
        self._asked: dict[TopicPartition, Wanted] = {}
        self._names: dict[tuple[bytes, int], TopicPartition] = {}  # of these, by topic id

    def fill(self, request: FetchRequest, wanted: Mapping[TopicPartition, Wanted], partition_bytes: int) -> None:
        """Set what the request names."""
        request.session_id, request.session_epoch = self._session_id, self._epoch
        forgotten = [known for known, asked in self._asked.items() if known not in wanted or wanted[known].topic_id != asked.topic_id]
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        for name, one in wanted.items():
            if self._asked.get(name) != one:
                topic = topics.setdefault(
                    (name.topic, one.topic_id), FetchTopic(topic=name.topic, topic_id=one.topic_id, partitions=[])
                )
                topic.partitions.append(
                    FetchPartition(
                        partition=name.partition,
                        current_leader_epoch=one.leader_epoch,
                        fetch_offset=one.fetch_offset,
                        last_fetched_epoch=one.last_fetched_epoch,
                        log_start_offset=one.log_start_offset,
                        partition_max_bytes=partition_bytes,
                    )
                )
        request.topics = list(topics.values())
        request.forgotten_topics_data = self._forgotten(forgotten) if self._session_id != _NEW_SESSION else []
        self._asked = dict(wanted)
        self._names = {(one.topic_id, name.partition): name for name, one in wanted.items()}

    def _forgotten(self, names: list[TopicPartition]) -> list[ForgottenTopic]:
        topics: dict[tuple[str, bytes], ForgottenTopic] = {}
        for name in names:
            topic_id = self._asked[name].topic_id
            topic = topics.setdefault((name.topic, topic_id), ForgottenTopic(topic=name.topic, topic_id=topic_id, partitions=[]))
            topic.partitions.append(name.partition)
        return list(topics.values())

    def answered(self, session_id: int) -> None:
        """The response, without an error, has this session id; 0: the leader has no room for a session."""
        if session_id == _NEW_SESSION:
            self.reset()
        elif session_id != self._session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def name_of(self, topic: str, topic_id: bytes, partition: int) -> TopicPartition | None:
        """The partition of a response, which has the topic's name or, from version 13 on, its id."""
        if topic:
            return TopicPartition(topic, partition)
        return self._names.get((topic_id, partition))
