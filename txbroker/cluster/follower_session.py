"""A follower's half of a fetch session (KIP-227; Kafka's FetchSessionHandler): requests name only what has changed since the last one."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.names import NULL_TOPIC_ID, TopicPartition
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
    """The partitions that are fetched, and what the leader knows of them. After `reset` the next request names all of them.

    Fetches name topics by their ids, or by their names if a topic has no id: all of a session the one or the other.

    The cost of a request depends on what has changed, not on the number of partitions. A request may overlap with the one before it: its
    session epoch is the next one, and it only names partitions that are new in the session. So the response to either is unambiguous.
    """

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._names: dict[tuple[bytes, int], TopicPartition] = {}  # of these, by topic id
        self._without_id = 0  # of these
        self._has_room = True  # the leader has not refused a session the last time
        self._uses_ids = True  # since the session began
        self.reset()

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def uses_ids(self) -> bool:
        """Whether requests name topics by ids: if all had one when the session began. Topics of brokers before 2.8 may have none."""
        return self._uses_ids if self._session_id != _NEW_SESSION else not self._without_id

    @property
    def may_wait(self) -> bool:
        """Whether the leader may wait for records. Not when a session begins: no request can overlap with the one that asks for it."""
        return self._session_id != _NEW_SESSION or self.is_refused

    @property
    def is_refused(self) -> bool:
        """Whether the leader has no room for a session: each request names all partitions, and none can overlap with it."""
        return self._session_id == _NEW_SESSION and not self._has_room

    @property
    def may_overlap(self) -> bool:
        """Whether there is something that a request can ask while another one waits."""
        return self._session_id != _NEW_SESSION and any(self._is_new(name) for name in self._changed)

    def reset(self) -> None:
        """The leader does not know the session, or it is not known what the leader knows: after every failure of a request."""
        self._session_id = _NEW_SESSION
        self._epoch = 0
        self._begins = False  # the request in flight asks for a new session
        self._asked: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, None] = dict.fromkeys(self._wanted)

    def want(self, name: TopicPartition, wanted: Wanted) -> None:
        """Fetch a partition, from now on or from another offset on."""
        if self._wanted.get(name) == wanted:
            return
        self.drop(name)
        self._wanted[name] = wanted
        self._names[wanted.topic_id, name.partition] = name
        if wanted.topic_id == NULL_TOPIC_ID:
            self._without_id += 1
            if self._uses_ids:
                self.reset()

    def drop(self, name: TopicPartition) -> None:
        """Fetch a partition no longer."""
        self._changed[name] = None
        known = self._wanted.pop(name, None)
        if known is not None:
            self._names.pop((known.topic_id, name.partition), None)
            self._without_id -= known.topic_id == NULL_TOPIC_ID

    def asked(self, name: TopicPartition) -> Wanted | None:
        """The last request for a partition of the session."""
        return self._asked.get(name)

    def _is_new(self, name: TopicPartition) -> bool:
        return name in self._wanted and name not in self._asked

    def fill(self, request: FetchRequest, partition_bytes: int, *, overlaps: bool = False) -> None:
        """Set what the request names. `overlaps`: another one is in flight; see `may_overlap`."""
        request.session_id, request.session_epoch = self._session_id, self._epoch
        if self._session_id == _NEW_SESSION:
            self._begins, self._uses_ids = True, not self._without_id
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        changed = [name for name in self._changed if not overlaps or self._is_new(name)]
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for name in changed:
            one, asked = self._wanted.get(name), self._asked.pop(name, None)
            if asked is not None and (one is None or one.topic_id != asked.topic_id):
                key = (name.topic, asked.topic_id)
                gone = forgotten.setdefault(key, ForgottenTopic(topic=name.topic, topic_id=asked.topic_id, partitions=[]))
                gone.partitions.append(name.partition)
            if one is None:
                continue
            self._asked[name] = one
            if one != asked:
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
        for name in changed:
            del self._changed[name]
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())

    def answered(self, session_id: int) -> None:
        """The response, without an error, has this session id; 0: the leader has no room for a session."""
        if self._begins:
            self._has_room = session_id != _NEW_SESSION
        if self._begins and session_id != _NEW_SESSION:
            self._session_id, self._epoch, self._begins = session_id, 1, False
        elif session_id == _NEW_SESSION or session_id != self._session_id:
            self.reset()

    def name_of(self, topic: str, topic_id: bytes, partition: int) -> TopicPartition | None:
        """The partition of a response, which has the topic's name or, from version 13 on, its id."""
        if topic:
            return TopicPartition(topic, partition)
        return self._names.get((topic_id, partition))
