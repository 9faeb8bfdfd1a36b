"""Who sends a fetch, and what that allows it to read."""

from __future__ import annotations

from txbroker.cluster.followers import UNKNOWN_EPOCH, SessionUse
from txbroker.cluster.partition import CONSUMER
from txbroker.wire.messages.fetch import FetchRequest


class FetchClient:
    """A consumer (`replica` is CONSUMER), or a replica with its broker epoch. Other negative ids: Kafka's tools, which read everything.

    `isolation`: of a consumer. `session`: when the fetch session was used last; None without a session. `reads_again`: the request waits,
    and its partitions are read again: only the first reading shows where a replica's log ends now.
    """

    __slots__ = ("broker_epoch", "isolation", "reads_again", "replica", "session")

    def __init__(self, replica: int = CONSUMER, broker_epoch: int = UNKNOWN_EPOCH, *, isolation: int = 0) -> None:
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.isolation = isolation
        self.session: SessionUse | None = None
        self.reads_again = False

    @classmethod
    def of(cls, request: FetchRequest) -> FetchClient:
        """The sender of a request."""
        if request.replica_id != CONSUMER:
            return cls(request.replica_id, isolation=request.isolation_level)
        state = request.replica_state
        return cls(state.replica_id, state.replica_epoch, isolation=request.isolation_level)

    @property
    def identity(self) -> tuple[int, int]:
        """The replica and its broker epoch."""
        return self.replica, self.broker_epoch
