"""Makes the loops that copy partitions from other brokers: their settings and connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from txbroker.broker.connections import Connections
from txbroker.broker.environment import Environment
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.config.resolve import BrokerConfig
from txbroker.log.log_config import LogConfig

if TYPE_CHECKING:
    from txbroker.cluster.fetcher_loop import FetcherLoop, Link

RESPONSE_OVERHEAD = 16 * 1024 * 1024  # one batch may exceed the limit of a response


def leader_quota(config: BrokerConfig, monotonic_s: Callable[[], float]) -> ReplicationQuota:
    """The throttle of what this broker sends to followers."""
    rate_max = partial(config.int, "leader.replication.throttled.rate")
    return _quota(config, rate_max, lambda topic: topic.leader_replication_throttled_replicas, monotonic_s)


def follower_quota(config: BrokerConfig, monotonic_s: Callable[[], float]) -> ReplicationQuota:
    """The throttle of what this broker receives from leaders, all of them together."""
    rate_max = partial(config.int, "follower.replication.throttled.rate")
    return _quota(config, rate_max, lambda topic: topic.follower_replication_throttled_replicas, monotonic_s)


def _quota(
    config: BrokerConfig, rate_max: Callable[[], int], replicas: Callable[[LogConfig], frozenset[str]], monotonic_s: Callable[[], float]
) -> ReplicationQuota:
    return ReplicationQuota(
        rate_max,
        replicas,
        monotonic_s,
        sample_count=config.int("replication.quota.window.num"),
        sample_s=config.int("replication.quota.window.size.seconds"),
    )


class FetcherLoops:
    """Call it with a leader's id for its loop, which connects to the leader's inter-broker listener."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        image: ClusterImage,
        environment: Environment,
        registered: IsrRequests,
        connections: Connections,
        listener: str,
    ) -> None:
        """`registered` knows this broker's epoch. `listener`: the name of the inter-broker listener."""
        self._broker_id = broker_id
        self._quota = follower_quota(config, environment.monotonic_s)
        self._config = config
        self._image = image
        self._environment = environment
        self._registered = registered
        self._connections = connections
        self._listener = listener

    def __call__(self, leader_id: int) -> FetcherLoop:
        from txbroker.cluster.fetcher_loop import FetcherLoop
        from txbroker.cluster.replica_fetcher import FetcherSettings, ReplicaFetcher

        config = self._config
        backoff_s = config.int("replica.fetch.backoff.ms") / 1000
        settings = FetcherSettings(
            wait_max_ms=config.int("replica.fetch.wait.max.ms"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            partition_bytes=config.int("replica.fetch.max.bytes"),
            response_bytes=config.int("replica.fetch.response.max.bytes"),
            backoff_s=backoff_s,
        )
        fetcher = ReplicaFetcher(
            self._broker_id,
            leader_id,
            settings,
            quota=self._quota,
            broker_epoch=lambda: self._registered.broker_epoch,
            monotonic_s=self._environment.monotonic_s,
            now_ms=self._environment.now_ms,
        )
        timeout_s = config.int("replica.socket.timeout.ms") / 1000
        return FetcherLoop(
            leader_id, fetcher, lambda: self._link(leader_id), self._environment.reactor, timeout_s=timeout_s, backoff_s=backoff_s
        )

    def _link(self, leader_id: int) -> Link | None:
        from txbroker.cluster.fetcher_loop import IN_FLIGHT_MAX

        endpoint = self._image.endpoint(leader_id, self._listener)
        if endpoint is None:
            return None
        limit = self._config.int("replica.fetch.response.max.bytes") + self._config.int("message.max.bytes") + RESPONSE_OVERHEAD
        return self._connections.open(endpoint, f"broker-{self._broker_id}-fetcher-0", limit, IN_FLIGHT_MAX)
