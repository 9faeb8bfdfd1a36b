"""The dispatch table of this broker: every request handler, constructed with the components that it needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.create_topics import CreateTopicsHandler
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.fetch import FetchHandler
from txbroker.api.find_coordinator import FindCoordinatorHandler
from txbroker.api.group_membership import HeartbeatHandler, JoinGroupHandler, LeaveGroupHandler, SyncGroupHandler
from txbroker.api.group_offsets import OffsetCommitHandler, OffsetDeleteHandler, OffsetFetchHandler
from txbroker.api.init_producer_id import InitProducerIdHandler
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.metadata import MetadataHandler
from txbroker.api.produce import ProduceHandler
from txbroker.api.registry import Registry
from txbroker.api.transaction_requests import AddOffsetsToTxnHandler, EndTxnHandler
from txbroker.broker.handler_dependencies import HandlerDependencies
from txbroker.broker.rare_handlers import FAMILIES
from txbroker.repeated_lines import RepeatedLines


def build_registry(parts: HandlerDependencies, clock: Callable[[], float] | None) -> Registry:
    """All request handlers; ApiVersions advertises what is registered here. `clock`: monotonic seconds, to measure request times."""
    p = parts
    registry = Registry(clock=clock, quotas=p.quotas, authorizer=p.authorizer, audit=p.audit, lines=RepeatedLines(p.monotonic_s))
    leaders = CurrentLeaders(p.replicas, p.image, p.endpoints)
    for handler in (
        ApiVersionsHandler(registry.ranges, p.transaction_version),
        ProduceHandler(p.replicas, leaders, p.produce, p.verifier, p.now_ms, p.monotonic_s),
        FetchHandler(
            p.replicas,
            p.image,
            p.sessions,
            p.fetch,
            p.monotonic_s,
            leaders=leaders,
            quota=p.leader_quota,
            client_quotas=p.quotas,
            fetch_max_bytes=p.config.int("fetch.max.bytes"),
            replica_selector=p.config.optional_text("replica.selector.class"),
        ),
        ListOffsetsHandler(p.replicas),
        MetadataHandler(p.image, p.endpoints, p.creation, p.waiting, p.cluster_id),
        InitProducerIdHandler(p.next_producer_id, p.transactions),
        p.adding,
        AddOffsetsToTxnHandler(p.transactions, p.image, p.creation),
        EndTxnHandler(p.transactions),
        FindCoordinatorHandler(p.image, p.endpoints, p.creation),
        JoinGroupHandler(p.coordinator),
        SyncGroupHandler(p.coordinator),
        HeartbeatHandler(p.coordinator),
        LeaveGroupHandler(p.coordinator),
        OffsetCommitHandler(p.coordinator, p.image),
        OffsetFetchHandler(p.coordinator, p.image),
        OffsetDeleteHandler(p.coordinator, p.image),
        CreateTopicsHandler(p.topic_admin, p.waiting, p.config, p.quotas, p.check_controller),
        p.markers,
    ):
        registry.register(handler)
    for make, apis in FAMILIES.items():
        registry.register_later(apis, partial(make, p))
    return registry
