"""Throttles of replication (KIP-73; Kafka's ReplicationQuotaManager): bytes a second that a broker sends as leader or gets as follower.

Only replicas count that the topic's leader.replication.throttled.replicas or follower.replication.throttled.replicas names. While the rate
of the window is above the limit, replicas that are not in sync get nothing; those in sync are never held back, as they would leave the ISR.
"""

from __future__ import annotations

from collections.abc import Callable

from txbroker.cluster.partition import Partition
from txbroker.cluster.sampled_sum import SampledSum
from txbroker.log.log_config import LogConfig

ALL_REPLICAS = "*"


class ReplicationQuota:
    """One direction of one broker.

    `rate_max`: bytes a second, leader.replication.throttled.rate or follower.replication.throttled.rate. `replicas`: the replicas that the
    topic's configuration names, as partition:broker. `sample_count` samples of `sample_s` make a window
    (replication.quota.window.num and .size.seconds).
    """

    def __init__(
        self,
        rate_max: Callable[[], int],
        replicas: Callable[[LogConfig], frozenset[str]],
        monotonic_s: Callable[[], float],
        *,
        sample_count: int,
        sample_s: float,
    ) -> None:
        self._rate_max = rate_max
        self._replicas = replicas
        self._monotonic_s = monotonic_s
        self._sample_s = sample_s
        self._bytes = SampledSum(sample_count, sample_s)

    def covers(self, partition: Partition) -> bool:
        """Whether this broker's replica of the partition is throttled in this direction."""
        throttled = self._replicas(partition.log.config)
        if not throttled:
            return False
        return ALL_REPLICAS in throttled or f"{partition.topic_partition.partition}:{partition.broker_id}" in throttled

    def record(self, size: int) -> None:
        """So many bytes of throttled replicas were sent or received."""
        self._bytes.record(size, self._monotonic_s())

    @property
    def rate(self) -> float:
        """Bytes a second, over the samples of the window and at least over the length of one."""
        size, age_s = self._bytes.measure(self._monotonic_s())
        return size / max(age_s, self._sample_s)

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return bool(self._bytes) and self.rate > self._rate_max()
