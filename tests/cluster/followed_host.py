"""A leader and a follower of several partitions: two hosts, and the follower's real fetcher between them."""

from __future__ import annotations

from typing import Any

from tests.cluster.replica_host import OTHER, OWN, VERSION, ReplicaHost
from tests.log.support import NOW
from txbroker.cluster.replica_fetcher import FetcherSettings, ReplicaFetcher
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.log.region import Region
from txbroker.wire.messages.fetch import FetchRequest

BACKOFF_S = 1.0
SETTINGS = FetcherSettings(wait_max_ms=0, min_bytes=1, partition_bytes=1000, response_bytes=100_000, backoff_s=BACKOFF_S)


class FollowedHost:
    """`throttled` and `rate_max`: of what the follower receives. `asked`: its requests. `room`: whether the leader has fetch sessions."""

    def __init__(self, partitions: int, **config: Any) -> None:
        """`config`: of the follower's topics."""
        self.leader, self.follower = ReplicaHost(partitions), ReplicaHost(partitions, OTHER, **config)
        self.clock = self.follower.clock
        self.throttled, self.rate_max = frozenset[str](), 0
        self.asked: list[FetchRequest] = []
        self.room = True
        quota = ReplicationQuota(lambda: self.rate_max, lambda config: self.throttled, self.clock.seconds, sample_count=11, sample_s=1)
        self.fetcher = ReplicaFetcher(
            OTHER, OWN, SETTINGS, quota=quota, broker_epoch=lambda: 100, monotonic_s=self.clock.seconds, now_ms=lambda: NOW
        )
        for index in range(partitions):
            self.fetcher.follow(self.follower.partition(index))

    def fetch(self, *, lose_answer: bool = False) -> bool:
        """One request and its answer. False if there is nothing to ask."""
        asked = self.fetcher.next_request(VERSION)
        if asked is None:
            return False
        version = 7
        if isinstance(asked.request, FetchRequest):
            self.asked.append(asked.request)
            version = VERSION
        (response,) = self.leader.send(asked.request, version, with_bytes)
        if not self.room:
            response.session_id = 0
        if lose_answer:
            self.fetcher.failed()
        else:
            self.fetcher.answered(response)
        return True

    def ends(self) -> list[int]:
        """The follower's log end offsets."""
        return [self.follower.partition(index).log.log_end_offset for index in range(self.follower.partitions)]


def named(request: FetchRequest) -> list[int]:
    """The partitions that a request names."""
    return sorted(partition.partition for topic in request.topics for partition in topic.partitions)


def forgotten(request: FetchRequest) -> list[int]:
    """The partitions that a request removes from the session."""
    return sorted(partition for topic in request.forgotten_topics_data for partition in topic.partitions)


def with_bytes(response: Any) -> Any:
    """The response with the bytes of its regions, as a client receives it."""
    for topic in getattr(response, "responses", []):
        for data in topic.partitions:
            if isinstance(data.records, Region):
                data.records = data.records.read()
    return response
