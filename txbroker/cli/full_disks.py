"""Whether a request failed because a broker's disk is full, where the error itself does not say so."""

from __future__ import annotations

from collections.abc import Iterable

from txbroker.client.blocking_connection import connect_to_any
from txbroker.client.client_errors import ClientError
from txbroker.errors import ErrorCode
from txbroker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

# With less than this a broker can hardly store anything.
USABLE_BYTES_MIN = 1024 * 1024
NO_SIZE = -1  # a broker that does not report sizes (before KIP-827)

# Errors that brokers answer, among other reasons, when they cannot write.
MAY_BE_FULL = frozenset({
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip


def full_disk(addresses: Iterable[tuple[str, int]]) -> str | None:
    """A sentence that names the full log directories of the first broker that answers; None if none is full, or it is not known."""
    try:
        with connect_to_any(addresses) as connection:
            response: DescribeLogDirsResponse = connection.call(DescribeLogDirsRequest(topics=[]))
    except ClientError:
        return None
    full = [found.log_dir for found in response.results if found.error_code == ErrorCode.NONE and _is_full(found.usable_bytes)]
    return f"the broker's disk is full: free space in {', '.join(sorted(full))}" if full else None


def _is_full(usable_bytes: int) -> bool:
    return usable_bytes != NO_SIZE and usable_bytes < USABLE_BYTES_MIN
