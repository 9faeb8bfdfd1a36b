"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and responses contain only what changed.

The partitions of a session that may have something new are read in order. One that returned records moves to the end, so that a busy one
does not starve the others. Sessions do not belong to connections: they are found by id, and evicted when the cache is full.

The cost of a fetch depends on what changed, not on the number of partitions in the session. A partition that had nothing new when it was
read is not read again until the client names it, or until it moves: its offsets or its leadership change. Moves end the wait of a fetch;
a new high watermark does not end that of a follower (KAFKA-9731): the follower receives it in its next response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

from txbroker.api.fetch_item import FetchClient, FetchItem, PartitionRead
from txbroker.cluster.followers import SessionUse
from txbroker.cluster.local_replica import CONSUMER
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TOPIC_NAME_LENGTH_MAX, TopicPartition
from txbroker.wire.messages.fetch import FetchRequest

# The key of an item in a session: the topic's name and id, and the partition.
Key = tuple[str, bytes, int]

NO_SESSION = 0
FINAL_EPOCH = -1  # a request without a session; a session that it names is closed
INITIAL_EPOCH = 0  # a request for a new session
_EPOCH_MAX = 0x7FFFFFFF

# As in Kafka's FetchSessionCache, a session that was used more recently than this is not evicted for a consumer's.
EVICTION_MIN_S = 120

# The partitions that one session may have. A request for more gets no session, so that no client uses up the limit of all.
SESSION_ITEMS_MAX = 10_000


@lazy_dataclass(slots=True, eq=False)
class FetchSession:
    """One client's partitions. `epoch` is the session epoch that the next request must have.

    `pending`: the partitions that may have something new. The others become pending when they move (`FetchSessions.moved`).
    `moved`: those of them that end the wait of the session's request. `privileged`: it is a follower's.
    """

    session_id: int
    client: FetchClient
    privileged: bool
    uses_ids: bool
    use: SessionUse
    items: dict[Key, FetchItem]
    pending: dict[FetchItem, None]
    moved: dict[FetchItem, None] = field(default_factory=dict)
    epoch: int = INITIAL_EPOCH + 1

    def used_by(self, client: FetchClient, monotonic_s: float) -> None:
        """A client sends a request. What another one has read is read again, as this one may be elsewhere."""
        if _reads_as(client) == _reads_as(self.client):
            self.use.at_s = monotonic_s
        else:
            self.use = SessionUse(monotonic_s)
            self.pending.update(dict.fromkeys(self.items.values()))
        self.client = client
        if client.replica != CONSUMER:
            client.session = self.use

    def forget(self, request: FetchRequest) -> list[FetchItem]:
        """Remove the forgotten partitions of the request, and return them."""
        forgotten = []
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                item = self.items.pop((gone.topic, gone.topic_id, partition), None)
                if item is not None:
                    self.pending.pop(item, None)
                    self.moved.pop(item, None)
                    forgotten.append(item)
        return forgotten

    def served(self, reads: Mapping[FetchItem, PartitionRead]) -> None:
        """Items that returned records move to the end: the others are read before them next time."""
        pending = self.pending
        for item, read in reads.items():
            if read.size and item in pending:
                del pending[item]
                pending[item] = None


def _reads_as(client: FetchClient) -> tuple[int, int, int]:
    return client.replica, client.broker_epoch, client.isolation


# What one request fetches: its partitions in order, its session, if it has one, and whether it is incremental, a later one of a session.
# The partitions of a later request are those that may have something new by now.
Plan: TypeAlias = tuple[list[FetchItem], FetchSession | None, bool]


class FetchSessions:
    """The cache of sessions: at most `slots` (max.incremental.fetch.session.cache.slots), with `items_max` partitions in total.

    Kafka limits the slots only; a partition takes some 500 bytes here. `evicted` counts the sessions that were replaced by others,
    `refused_slots` and `refused_size` the requests that got no session, because there was no slot or it was too large.
    """

    def __init__(self, slots: int, random_id: Callable[[], int], *, items_max: int = 500_000) -> None:
        self._slots = slots
        self._items_max = items_max
        self._items = 0
        self._random_id = random_id  # returns a positive 31-bit number
        self._sessions: dict[int, FetchSession] = {}
        # By `privileged`, the least recently used first: what is evicted is found at the front, however many sessions there are.
        self._by_use: dict[bool, dict[int, FetchSession]] = {False: {}, True: {}}
        self.watched: dict[TopicPartition, dict[FetchItem, FetchSession]] = {}
        """The partitions whose moves concern a session: `moved` and `committed` are to be called for these only."""
        self._moved: dict[TopicPartition, bool] = {}  # whether more than the high watermark has moved
        self._to_check: dict[FetchSession, None] = {}
        self.evicted = 0
        self.refused_slots = 0
        self.refused_size = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions have together."""
        return self._items

    def find(self, session_id: int, client: FetchClient) -> FetchSession | None:
        """The session of this id, unless it is another principal's."""
        found = self._sessions.get(session_id)
        return found if found is None or found.client.principal == client.principal else None

    def plan(
        self, found: FetchSession | None, request: FetchRequest, uses_ids: bool, client: FetchClient, monotonic_s: float
    ) -> Plan:
        """What the request fetches. `found`: the session that it names (`find`).

        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if found is not None:
                self.remove(session_id)
            return self._begin(request, uses_ids, client, monotonic_s)
        if found is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        by_use = self._by_use[found.privileged]
        del by_use[session_id]
        by_use[session_id] = found  # now the most recently used
        if found.epoch != epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the session's epoch is {found.epoch}, not {epoch}")
        if found.uses_ids != uses_ids:
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if client is found.client:
            found.use.at_s = monotonic_s
        else:
            found.used_by(client, monotonic_s)
        if self._moved:
            self._mark_moved()
        if found.moved:
            found.moved = {}
        before = len(found.items)
        if request.topics:
            found.pending.update(_named(request, found.items))
        has_new = len(found.items) > before
        if request.forgotten_topics_data:
            for item in found.forget(request):
                self._unwatch(item)
        items = len(found.items)
        self._items += items - before
        if has_new and not self._fits(request, items):  # the client continues without a session
            self.remove(session_id)
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not items:  # a session without partitions is closed
            self.remove(session_id)
            return [], None, True
        found.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1  # from the last one to 1, as 0 requests a new session
        return list(found.pending), found, True

    def _begin(self, request: FetchRequest, uses_ids: bool, client: FetchClient, monotonic_s: float) -> Plan:
        """The plan of a request without a session, or of the first one of a session, if there is room for it."""
        items: dict[Key, FetchItem] = {}
        pending = _named(request, items)
        session = None
        privileged = client.replica != CONSUMER
        fits = request.session_epoch == INITIAL_EPOCH and items and self._fits(request, len(items), len(items))
        if fits and self._make_room(privileged, monotonic_s):
            session = FetchSession(self._new_id(), client, privileged, uses_ids, SessionUse(monotonic_s), items, pending)
            if privileged:
                client.session = session.use
            self._sessions[session.session_id] = self._by_use[privileged][session.session_id] = session
            self._items += len(items)
        return list(pending), session, False

    def watch(self, session: FetchSession, item: FetchItem) -> None:
        """From now on moves of this partition, which has been found, make the item pending in the session.

        Does nothing if the session is closed: a fetch that waits may outlive its session, and would leave a watch behind.
        """
        place = item.place
        if place is not None and self._sessions.get(session.session_id) is session:
            item.is_watched = True
            watching = self.watched.get(place)
            if watching is None:
                watching = self.watched[place] = {}
            watching[item] = session

    def _unwatch(self, item: FetchItem) -> None:
        if item.is_watched and item.place is not None:
            watching = self.watched[item.place]
            del watching[item]
            if not watching:
                del self.watched[item.place]
            item.is_watched = False

    def moved(self, topic_partition: TopicPartition) -> None:
        """A watched partition has moved. This is only recorded, because appends call it."""
        self._moved[topic_partition] = True

    def committed(self, topic_partition: TopicPartition) -> None:
        """Only the high watermark of a watched partition has moved."""
        self._moved.setdefault(topic_partition, False)

    def take_moved(self) -> list[FetchSession]:
        """The sessions with partitions that have moved since the last call, each once. Their waiting fetches are checked next."""
        if self._moved:
            self._mark_moved()
        sessions, self._to_check = list(self._to_check), {}
        return sessions

    def _mark_moved(self) -> None:
        """Make the partitions that moved pending in their sessions. They are not watched there until they are read again.

        So frequent appends to a partition cost nothing for sessions that have not fetched since its first move.
        """
        moved, self._moved = self._moved, {}
        to_check = self._to_check
        for topic_partition, followers_too in moved.items():
            kept: dict[FetchItem, FetchSession] = {}
            for item, session in self.watched.pop(topic_partition, {}).items():
                session.pending.setdefault(item)
                if followers_too or not session.privileged:
                    item.is_watched = False
                    session.moved[item] = None
                    to_check[session] = None
                else:
                    kept[item] = session
            if kept:
                self.watched[topic_partition] = kept

    def _fits(self, request: FetchRequest, own: int, more: int = 0) -> bool:
        """Whether a session may have `own` partitions, `more` of them new in the cache, and topics with the names of the request."""
        fits = own <= SESSION_ITEMS_MAX and self._items + more <= self._items_max
        # No topic can have a longer name, so there is no use in keeping it.
        fits = fits and all(len(topic.topic) <= TOPIC_NAME_LENGTH_MAX for topic in request.topics)
        self.refused_size += not fits
        return fits

    def _make_room(self, privileged: bool, monotonic_s: float) -> bool:
        """Whether there is a slot, or one session may be evicted: one that is stale, or any consumer's for a follower's."""
        if len(self._sessions) < self._slots:
            return True
        consumers, followers = (next(iter(self._by_use[kind].values()), None) for kind in (False, True))
        stale = min((first for first in (consumers, followers) if first is not None), key=lambda first: first.use.at_s, default=None)
        if stale is not None and monotonic_s - stale.use.at_s > EVICTION_MIN_S:
            evicted = stale
        elif privileged and consumers is not None:
            evicted = consumers
        else:
            self.refused_slots += 1
            return False
        self.remove(evicted.session_id)
        self.evicted += 1
        return True

    def remove(self, session_id: int) -> None:
        """Close a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            del self._by_use[session.privileged][session_id]
            self._items -= len(session.items)
            for item in session.items.values():
                self._unwatch(item)

    def _new_id(self) -> int:
        while True:
            session_id = self._random_id()
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id


def _named(request: FetchRequest, items: dict[Key, FetchItem]) -> dict[FetchItem, None]:
    """The partitions that a request names, each once, in order; those that are new are added to `items`."""
    named: dict[FetchItem, None] = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for wanted in topic.partitions:
            key = (name, topic_id, wanted.partition)
            item = items.get(key)
            if item is None:
                item = items[key] = FetchItem(name, topic_id, wanted)
            else:
                item.wanted = wanted
            named[item] = None
    return named

