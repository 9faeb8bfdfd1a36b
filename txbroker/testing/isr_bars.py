"""Keeps replicas out of the ISR of single partitions: this broker, as their leader, proposes them no more.

The replicas go on copying. It is as if the controller refused them (INELIGIBLE_REPLICA).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError
from txbroker.names import TopicPartition


class IsrBars:
    """Of one broker. `components`: its replicas and ISR requests."""

    def __init__(self, components: Any) -> None:
        self._replicas: Replicas = components.replicas
        self._requests: IsrRequests = components.isr_requests
        self._propose = self._requests.propose
        self._requests.propose = self._filtered
        self._allowed: dict[TopicPartition, frozenset[int]] = {}

    def set(self, topic: str, partition: int, allowed: Collection[int]) -> None:
        """From now on only these replicas are in the ISR, if this broker leads the partition. Again until the controller has agreed."""
        self._allowed[TopicPartition(topic, partition)] = frozenset(allowed)
        with suppress(BrokerError):  # no replica here
            self._replicas.get(topic, partition).narrow_isr(allowed)

    def remove(self, topic: str, partition: int) -> None:
        """Every replica that has caught up may join again."""
        self._allowed.pop(TopicPartition(topic, partition), None)

    def _filtered(self, partition: Partition, proposal: IsrProposal) -> None:
        allowed = self._allowed.get(partition.topic_partition)
        if allowed is None or proposal.members <= {partition.broker_id, *allowed}:
            self._propose(partition, proposal)
        else:
            partition.isr_refused(proposal)
