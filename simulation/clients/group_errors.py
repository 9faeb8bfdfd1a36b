"""The errors of a coordinator of groups that faults explain."""

from __future__ import annotations

from txbroker.errors import ErrorCode

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
COMMIT = COORDINATOR_MOVED | {ErrorCode.REQUEST_TIMED_OUT}
