"""The requests that wait for one broker. LeaderAndIsr and UpdateMetadata are merged with others of their kind.

A broker that does not answer costs memory for the partitions that have changed, not for their changes, and gets the last state of each
when it answers again. The order that matters is kept: LeaderAndIsr is sent before the UpdateMetadata with the same states, since clients
must not use a leader before it has its role, but not before one with the addresses of brokers that have started; and nothing overtakes a
StopReplica.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.image import FULL
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.stop_replica import StopReplicaRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest


class WaitingRequests:
    """A queue of one controller term for one start of a broker: all of its requests have the same epochs."""

    def __init__(self) -> None:
        self._waiting: list[_Merged] = []
        self._live: set[int] = set()  # the live brokers in the last UpdateMetadata

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: ControllerRequest) -> None:
        """Add a request, or what it says to one that waits."""
        merged = self._of_its_kind(request)
        if merged is None:
            merged = _Merged(request)
            self._waiting.append(merged)
        else:
            merged.add(request)
        if isinstance(request, UpdateMetadataRequest):
            live = {broker.id for broker in request.live_brokers}
            merged.has_addresses |= not live <= self._live
            self._live = live

    def take(self) -> ControllerRequest:
        """The next request; there must be one."""
        return self._waiting.pop(0).request()

    def clear(self) -> None:
        """Drop all."""
        self._waiting.clear()

    def _of_its_kind(self, request: ControllerRequest) -> _Merged | None:
        """The request that this one may be merged with: the last one, and for LeaderAndIsr also the one before an UpdateMetadata."""
        for waiting in reversed(self._waiting):
            if waiting.kind is StopReplicaRequest:
                break
            if waiting.kind is type(request):
                return waiting
            if waiting.has_addresses or not isinstance(request, LeaderAndIsrRequest):
                break
        return None


class _Merged:
    """Requests of one kind. Of each partition the last state counts; a topic that was created again is another one."""

    def __init__(self, request: ControllerRequest) -> None:
        self.kind = type(request)
        self.has_addresses = False  # of brokers that have started
        self._request = request
        self._topics: dict[tuple[str, bytes], tuple[Any, dict[int, Any]]] = {}  # empty: there is only one request

    def add(self, request: ControllerRequest) -> None:
        """Merge a later request."""
        if not self._topics:
            self._add_topics(self._request)
        self._add_topics(request)
        merged = copy(request)
        if isinstance(merged, LeaderAndIsrRequest) and isinstance(self._request, LeaderAndIsrRequest):
            leaders = {leader.broker_id: leader for leader in (*self._request.live_leaders, *merged.live_leaders)}
            merged.live_leaders = list(leaders.values())
        if isinstance(merged, UpdateMetadataRequest) and isinstance(self._request, UpdateMetadataRequest) and self._request.type == FULL:
            merged.type = FULL  # later requests only add and delete topics
        self._request = merged

    def request(self) -> ControllerRequest:
        """All of them as one."""
        if self._topics:
            topics: list[Any] = []
            for topic, states in self._topics.values():
                topics.append(copy(topic))
                topics[-1].partition_states = list(states.values())
            self._request.topic_states = topics
        return self._request

    def _add_topics(self, request: ControllerRequest) -> None:
        for topic in request.topic_states:
            _, states = self._topics.setdefault((topic.topic_name, getattr(topic, "topic_id", b"")), (topic, {}))
            for state in topic.partition_states:
                states[state.partition_index] = _later(states.get(state.partition_index), state)


def _later(before: Any, state: Any) -> Any:
    """A partition's later state. A log that was to be created is still to be created."""
    if getattr(before, "is_new", False) and not state.is_new:
        state = copy(state)  # other brokers' requests may have it, too
        state.is_new = True
    return state
