"""Whatever was refused, delayed by a limit, or ended by the broker, by reason: the first place to look at when clients complain."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.api.registry import Registry
from txbroker.api.unsupported_features import Feature
from txbroker.errors import ErrorCode
from txbroker.metrics.families import Piece, Sample, counter, counters, labels
from txbroker.metrics.watched import Watched
from txbroker.wire.messages.join_group import JoinGroupRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest
from txbroker.wire.messages.produce import ProduceRequest

# What ends connections, by whom: the protocol of a connection, or the transport.
_CLOSED_BY_PROTOCOL = (
    "request_too_large",
    "request_too_small",
    "unparsable_request",
    "unknown_api",
    "unsupported_version",
    "failed_without_answer",
)
_CLOSED_BY_TRANSPORT = ("idle", "replies_not_taken", "stalled_request", "file_gone", "stopping")
# What an answer's error says of a limit.
_BY_ERROR = (
    ("record_too_large", ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE),
    ("batch_too_large", ProduceRequest, ErrorCode.RECORD_LIST_TOO_LARGE),
    ("offset_metadata_too_large", OffsetCommitRequest, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ("group_full", JoinGroupRequest, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ("group_member_too_large", JoinGroupRequest, ErrorCode.INVALID_REQUEST),
)


def refusals(watched: Watched) -> Iterator[Piece]:
    """`txbroker_refusals`: every reason from the start on, that rates can be told."""
    hub, registry, sessions = watched.hub, watched.registry, watched.sessions
    quotas = hub.quotas
    counts: dict[str, int] = {
        "max_connections": quotas.waits_for_connections,
        "max_connections_per_ip": quotas.refused,
        "no_descriptors": quotas.waits_for_descriptors,
        "request_memory": hub.buffers.waits,
        "no_descriptors_for_logs": watched.directories.lacks,
        "no_space_for_logs": watched.directories.full,
        "fetch_session_slots": sessions.refused_slots,
        "fetch_session_too_large": sessions.refused_size,
        "fetch_session_evicted": sessions.evicted,
        **{f"{name.lower()}_purgatory_full": purgatory.refused for name, purgatory in watched.purgatories.items()},
        **{reason: registry.closed[reason] for reason in _CLOSED_BY_PROTOCOL},
        **{f"unsupported_{feature.name.lower()}": registry.unsupported.counts[feature] for feature in Feature},
        **{reason: hub.closed_for[reason] for reason in _CLOSED_BY_TRANSPORT},
        **{reason: _errors(registry, request.api_key, code) for reason, request, code in _BY_ERROR},
    }
    samples: list[Sample] = [(labels(reason=reason), count) for reason, count in sorted(counts.items())]
    documentation = "What was refused, made to wait by a limit, or ended by the broker, by reason"
    yield from counters("txbroker_refusals", documentation, samples)
    yield from counter(
        "txbroker_reading_paused",
        "How often a connection was not read any further until some of its requests were answered, or answers taken",
        hub.pauses,
    )


def _errors(registry: Registry, api_key: int, code: ErrorCode) -> int:
    of_api = registry.errors.get(api_key)
    return of_api[code] if of_api is not None else 0
