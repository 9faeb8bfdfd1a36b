"""Requests and connections that were refused, delayed by a limit, or closed by the broker, by reason."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.api.registry import Registry
from txbroker.api.unsupported_features import Feature
from txbroker.client_quotas.quotas import KINDS
from txbroker.errors import ErrorCode
from txbroker.metrics.families import Piece, Sample, counter, counters, labels
from txbroker.metrics.sources import MetricSources
from txbroker.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from txbroker.wire.messages.join_group import JoinGroupRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest
from txbroker.wire.messages.produce import ProduceRequest

# Reasons for which the connection's protocol, or the transport, closes connections.
_CLOSED_BY_PROTOCOL = (
    "request_too_large",
    "request_too_small",
    "unparsable_request",
    "unknown_api",
    "unsupported_version",
    "handler_not_loaded",
    "failed_without_answer",
    "session_expired",
)
_CLOSED_BY_TRANSPORT = ("idle", "replies_not_taken", "stalled_request", "file_gone", "stopping",
                        "login_connections", "login_timeout", "login_too_large",
                        "plain_client", "tls_handshake_failed", "tls_handshake_timeout", "tls_principal")  # fmt: skip
# Errors in responses that mean a limit.
_BY_ERROR = (
    ("record_too_large", ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE),
    ("batch_too_large", ProduceRequest, ErrorCode.RECORD_LIST_TOO_LARGE),
    ("offset_metadata_too_large", OffsetCommitRequest, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ("delegation_tokens", CreateDelegationTokenRequest, ErrorCode.POLICY_VIOLATION),
    ("group_full", JoinGroupRequest, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ("group_member_too_large", JoinGroupRequest, ErrorCode.INVALID_REQUEST),
)


def refusals(sources: MetricSources) -> Iterator[Piece]:
    """`txbroker_refusals`, with all reasons from the start, so that rates can be computed."""
    hub, registry, sessions = sources.hub, sources.registry, sources.sessions
    quotas = hub.quotas
    counts: dict[str, int] = {
        "max_connections": quotas.waits_for_connections,
        "max_connections_per_ip": quotas.refused,
        "connection_creation_rate": quotas.rates.throttled if quotas.rates else 0,
        "max_connection_creation_rate": quotas.rates.delayed if quotas.rates else 0,
        "no_descriptors": quotas.waits_for_descriptors,
        **{kind: registry.quotas.throttled[kind] if registry.quotas else 0 for kind in KINDS},
        "request_memory": hub.buffers.waits,
        "no_descriptors_for_logs": sources.directories.resource_failures,
        "no_space_for_logs": sources.directories.space_failures,
        "fetch_session_slots": sessions.refused_slots,
        "fetch_session_too_large": sessions.refused_size,
        "fetch_session_evicted": sessions.evicted,
        **{f"{name.lower()}_purgatory_full": purgatory.refused for name, purgatory in sources.purgatories.items()},
        **{reason: registry.closed[reason] for reason in _CLOSED_BY_PROTOCOL},
        **{f"unsupported_{feature.name.lower()}": registry.unsupported.counts[feature] for feature in Feature},
        **{reason: hub.closed_for[reason] for reason in _CLOSED_BY_TRANSPORT},
        **{reason: _errors(registry, request.api_key, code) for reason, request, code in _BY_ERROR},
    }
    samples: list[Sample] = [(labels(reason=reason), count) for reason, count in sorted(counts.items())]
    documentation = "Requests and connections refused, delayed by a limit or closed by the broker, by reason"
    yield from counters("txbroker_refusals", documentation, samples)
    yield from counter(
        "txbroker_reading_paused",
        "Times that reading from a connection was paused because too many of its requests or responses were pending",
        hub.pauses,
    )


def _errors(registry: Registry, api_key: int, code: ErrorCode) -> int:
    of_api = registry.errors.get(api_key)
    return of_api[code] if of_api is not None else 0
