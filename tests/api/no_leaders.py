"""For handlers in tests without other brokers."""

from __future__ import annotations

from txbroker.api.current_leaders import CurrentLeader, CurrentLeaders
from txbroker.cluster.node_data import NO_LEADER


def no_leaders() -> CurrentLeaders:
    """No leader is known."""
    return _NoLeaders.__new__(_NoLeaders)


class _NoLeaders(CurrentLeaders):
    def of(self, topic: str, partition: int) -> CurrentLeader:
        return CurrentLeader(NO_LEADER, -1)
