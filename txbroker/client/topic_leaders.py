"""Where a topic's partitions are led: asked at the start, and again when a leader moved or was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from txbroker.cli.failures import CommandFailed, broker_error, no_topic
from txbroker.client.blocking import Link, LinkFailed, open_link
from txbroker.errors import ErrorCode
from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from txbroker.wire.schema import Request

T = TypeVar("T")

# Errors that pass by themselves, or once the leader is asked for again; Java's RetriableException, as far as it comes in these answers.
PASSING = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CONCURRENT_TRANSACTIONS,
})  # fmt: skip
START_TIMEOUT_S = 15.0


class Broker(NamedTuple):
    """A broker's id and its advertised address."""

    node_id: int
    host: str
    port: int


class Leaders(NamedTuple):
    """A topic, and the leader of each of its partitions (None: there is none just now)."""

    name: str
    topic_id: bytes
    by_partition: dict[int, Broker | None]


class Topic:
    """One topic of a cluster, asked for through the bootstrap servers."""

    def __init__(self, servers: str, name: str, client_id: str, backoff_s: float, *, may_be_made: bool) -> None:
        self.name = name
        self._servers = servers
        self._client_id = client_id
        self._backoff_s = max(backoff_s, 0.01)
        self._may_be_made = may_be_made
        self._link: Link | None = open_link(servers, client_id)

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def version_of(self, request: type[Request]) -> int:
        """The newest version that the cluster and this program know; CommandFailed."""
        version = self._connected().version_of(request)
        if version is None:
            name = request.__name__.removesuffix("Request")
            raise CommandFailed(f"the broker does not know {name} in versions {request.versions}; use a newer broker")
        return version

    def leaders(self) -> Leaders:
        """Once every partition has a leader; CommandFailed when the topic is not there, or stays without leaders for long."""
        return self.until_it_passes(self._leaders, f"topic {self.name} cannot be used")

    def look(self) -> Leaders | None:
        """The leaders as they are now; None when nobody answers, or the topic is not known just now."""
        try:
            return self._read()
        except (LinkFailed, CommandFailed):
            self.close()
            return None

    def until_it_passes(self, attempt: Callable[[], int | T], what: str) -> T:
        """Try until `attempt` gives something else than an error code that passes; `what` did not work, if it never does."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            outcome = attempt()
            if not isinstance(outcome, int):
                return outcome
            if outcome not in PASSING or time.monotonic() > deadline:
                raise broker_error(what, outcome, None)
            time.sleep(self._backoff_s)

    def call(self, request: Request) -> object:
        """Ask the bootstrap server something."""
        return self._connected().call(request)

    def _connected(self) -> Link:
        if self._link is None:
            self._link = open_link(self._servers, self._client_id)
        return self._link

    def _leaders(self) -> Leaders | int:
        found = self._read()
        if None in found.by_partition.values():
            return int(ErrorCode.LEADER_NOT_AVAILABLE)
        return found

    def _read(self) -> Leaders:
        """CommandFailed for a topic that is not there; one that is being made has no partitions yet, so it is asked for again."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=self._may_be_made)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            answer: MetadataResponse = self._connected().call(wanted)
            (topic,) = answer.topics
            if topic.error_code == ErrorCode.NONE and topic.partitions:
                break
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._is_being_made():
                raise no_topic(self.name)
            if topic.error_code not in PASSING or time.monotonic() > deadline:
                raise broker_error(f"topic {self.name} cannot be used", topic.error_code, None)
            time.sleep(self._backoff_s)
        brokers = {broker.node_id: Broker(broker.node_id, broker.host, broker.port) for broker in answer.brokers}
        by_partition = {p.partition_index: brokers.get(p.leader_id) for p in topic.partitions}
        return Leaders(self.name, topic.topic_id or NULL_TOPIC_ID, dict(sorted(by_partition.items())))

    def _is_being_made(self) -> bool:
        """Whether a topic that the broker does not know may come: Kafka makes topics behind an answer that says so."""
        from txbroker.cli.autocreate import makes_topics

        return self._may_be_made and makes_topics(self._connected()) is not False
