"""The log directories of a broker and their disk space, by DescribeLogDirs (KIP-113; sizes since KIP-827)."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import RequestFailed
from txbroker.errors import ErrorCode
from txbroker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

# With less than this a broker can hardly write anything: a file system may keep some blocks that no file gets.
FULL_BYTES = 1024 * 1024
_NOT_REPORTED = -1


class LogDirectory(NamedTuple):
    """One of the broker's log.dirs. `error_code` is KAFKA_STORAGE_ERROR for one that is offline; sizes are None if not reported."""

    path: str
    error_code: int
    total_bytes: int | None
    usable_bytes: int | None

    @property
    def full(self) -> bool:
        """Whether its file system has no space left."""
        return self.usable_bytes is not None and self.usable_bytes < FULL_BYTES


def log_directories(connection: BlockingConnection) -> list[LogDirectory]:
    """All log directories of the broker; RequestFailed (for example without the ACL), ConnectionFailed."""
    response: DescribeLogDirsResponse = connection.call(DescribeLogDirsRequest(topics=[]))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed("log directories cannot be described", response.error_code)
    return [
        LogDirectory(found.log_dir, found.error_code, _size(found.total_bytes), _size(found.usable_bytes)) for found in response.results
    ]


def _size(count: int) -> int | None:
    return None if count == _NOT_REPORTED else count
