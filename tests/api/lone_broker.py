"""What fetch handlers need of a cluster, in tests of one broker."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from txbroker.api.current_leaders import CurrentLeader, CurrentLeaders
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.node_data import NO_LEADER
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.transactions.verification import TransactionVerifier


def alone() -> dict[str, Any]:
    """Arguments of FetchHandler."""
    return {"leaders": no_leaders(), "quota": no_quota(), "client_quotas": no_client_quotas()}


def no_leaders() -> CurrentLeaders:
    """No leader is known."""
    return _NoLeaders.__new__(_NoLeaders)


class _NoLeaders(CurrentLeaders):
    def of(self, topic: str, partition: int) -> CurrentLeader:
        return CurrentLeader(NO_LEADER, -1)


def no_quota() -> ReplicationQuota:
    """Nothing is throttled."""
    return ReplicationQuota(lambda: 0, lambda config: frozenset(), lambda: 0.0, sample_count=1, sample_s=1)


def no_client_quotas() -> ClientQuotas:
    """No client has a quota."""
    return ClientQuotas(Clock(), sample_count=11, sample_s=1)


def no_transactions() -> TransactionVerifier:
    """For a ProduceHandler whose requests are not transactional."""
    return TransactionVerifier.__new__(TransactionVerifier)
