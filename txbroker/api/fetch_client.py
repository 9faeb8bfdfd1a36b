"""Who sends a fetch, and what that allows it to read."""

from __future__ import annotations

from txbroker.api.request_context import ANONYMOUS, RequestContext
from txbroker.cluster.followers import UNKNOWN_EPOCH, SessionUse
from txbroker.cluster.local_replica import CONSUMER
from txbroker.wire.messages.fetch import FetchRequest

ANY_REPLICA_VERSION = 11  # from here on consumers may read from followers


class FetchClient:
    """A consumer (`replica` is CONSUMER), or a replica with its broker epoch. Other negative ids: Kafka's tools, which read everything.

    `principal`: who it is; another one has no access to its session, and shares no reads with it.
    `isolation`, `rack` ("": none) and `listener`: of a consumer. `any_replica`: it may read from followers.

    Of a replica's request only: `session`: when the fetch session was used last; None without a session. `reads_again`: the request waits,
    and its partitions are read again: only the first reading shows where a replica's log ends now.
    """

    __slots__ = ("any_replica", "broker_epoch", "isolation", "listener", "principal", "rack", "reads_again", "replica", "session")

    def __init__(
        self,
        replica: int = CONSUMER,
        broker_epoch: int = UNKNOWN_EPOCH,
        *,
        isolation: int = 0,
        rack: str = "",
        listener: str = "",
        any_replica: bool = False,
        principal: str = ANONYMOUS,
    ) -> None:
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.isolation = isolation
        self.rack = rack
        self.listener = listener
        self.any_replica = any_replica
        self.principal = principal
        self.session: SessionUse | None = None
        self.reads_again = False

    def is_of(self, request: FetchRequest, context: RequestContext) -> bool:
        """Whether this is the sender of a request, and a consumer: requests of the same kind of consumer share it."""
        return (
            self.replica == CONSUMER == request.replica_id
            and request.replica_state.replica_id == CONSUMER
            and self.isolation == request.isolation_level
            and self.rack == request.rack_id
            and self.listener == context.session.listener
            and self.principal == context.session.principal
            and self.any_replica == (context.api_version >= ANY_REPLICA_VERSION)
        )

    @classmethod
    def of(cls, request: FetchRequest, context: RequestContext) -> FetchClient:
        """The sender of a request."""
        replica, broker_epoch = request.replica_id, UNKNOWN_EPOCH
        if replica == CONSUMER:
            replica, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        return cls(
            replica,
            broker_epoch,
            isolation=request.isolation_level,
            rack=request.rack_id,
            listener=context.session.listener,
            any_replica=replica == CONSUMER and context.api_version >= ANY_REPLICA_VERSION,
            principal=context.session.principal,
        )

    @property
    def identity(self) -> tuple[int, int]:
        """The replica and its broker epoch."""
        return self.replica, self.broker_epoch
