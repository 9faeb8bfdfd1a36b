"""Whether a request failed because a broker's disk is full, where the error itself does not say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from txbroker.client.blocking_connection import DEFAULT_SETTINGS, connect_to_any
from txbroker.client.client_errors import ClientError
from txbroker.client.client_machine import ClientSettings
from txbroker.client.log_directories import log_directories
from txbroker.console.failures import CommandFailed, client_failure
from txbroker.errors import ErrorCode

# Errors that brokers answer, among other reasons, when they cannot write.
MAY_BE_FULL = frozenset({
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip


def full_disk(addresses: Iterable[tuple[str, int]], settings: ClientSettings = DEFAULT_SETTINGS) -> str | None:
    """A sentence that names the full log directories of the first broker that answers; None if none is full, or it is not known."""
    try:
        with connect_to_any(addresses, settings) as connection:
            full = sorted(found.path for found in log_directories(connection) if not found.error_code and found.full)
    except ClientError:
        return None
    return f"the broker's disk is full: free space in {', '.join(full)}" if full else None


def explained(
    problem: CommandFailed, addresses: Iterable[tuple[str, int]], settings: ClientSettings = DEFAULT_SETTINGS
) -> CommandFailed:
    """The same failure, with the reason if that is a full disk and the text does not say so."""
    if problem.code not in MAY_BE_FULL or "disk is full" in str(problem):
        return problem
    full = full_disk(addresses, settings)
    return problem if full is None else CommandFailed(f"{problem}; {full}", problem.code)


@contextmanager
def explaining(addresses: Iterable[tuple[str, int]], settings: ClientSettings = DEFAULT_SETTINGS) -> Iterator[None]:
    """Failures of a command that uses this project's own client, explained."""
    try:
        yield
    except ClientError as error:
        raise explained(client_failure(error), addresses, settings) from error
    except CommandFailed as problem:
        raise explained(problem, addresses, settings) from problem
