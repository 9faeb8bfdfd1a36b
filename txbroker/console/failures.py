"""Errors and warnings of commands, on standard error: sentences, or JSON objects with --json. Exit statuses."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from txbroker.client.client_errors import ClientError, RequestFailed, TopicMissing
from txbroker.console.texts import visible
from txbroker.errors import ErrorCode

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandFailed(Exception):
    """The command failed (exit status 1). The text says what to do next; `code`: the broker's error code, if it returned one."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class BadUsage(CommandFailed):
    """Flags that cannot be used together, or an invalid value of one (exit status 2)."""


_FENCED = (
    "another producer with this transactional id has started, or the transaction was open for longer than transaction.timeout.ms; "
    "run one producer with an id at a time"
)
# What to do about frequent errors.
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see `txbroker topics --list`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "specify --if-not-exists to ignore this",
    ErrorCode.INVALID_REPLICATION_FACTOR: "specify a --replication-factor of at most the number of brokers",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true in the broker's configuration",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes and the producer's max.request.size",
    ErrorCode.NOT_ENOUGH_REPLICAS: "wait for replicas to come back, or lower min.insync.replicas",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `txbroker groups --list`",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.KAFKA_STORAGE_ERROR: "see the broker's log for the log directory that failed",
    ErrorCode.NOT_CONTROLLER: "try again in a moment",
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers",
    ErrorCode.INVALID_RECORD: "a compacted topic requires keys: use --reader-property parse.key=true",
}


# Errors by which a broker refuses a setting of the command.
_WRONG_USAGE = {ErrorCode.INVALID_TRANSACTION_TIMEOUT}
_FREE_SPACE = "free space there: `txbroker delete-records`, then `txbroker log-cleaner --expire TOPIC`, for all but the active segments"
# The texts of ENOSPC and EDQUOT on Linux, in error messages of brokers.
_NO_ROOM = ("No space left on device", "Disk quota exceeded")


def broker_error(what: str, code: int, message: str | None) -> CommandFailed:
    """The broker returned an error code. `what`: what failed. `message`: the broker's error message."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return CommandFailed(f"{what}: the broker returned error {code}, which this version of txbroker does not know")
    text = (message or known.name.lower().replace("_", " ")).rstrip(".")
    advice = _ADVICE.get(known)
    if known is ErrorCode.KAFKA_STORAGE_ERROR and any(sign in text for sign in _NO_ROOM):
        text, advice = f"the broker's disk is full: {text}", _FREE_SPACE
    kind = BadUsage if known in _WRONG_USAGE else CommandFailed
    return kind(f"{what}: {text} ({known.name})" + (f"; {advice}" if advice else ""), known)


class _Complaints:
    """The format of warnings and errors of the current command."""

    as_json = False


def complain_as_json(on: bool) -> None:
    """Set the format: JSON objects, or sentences."""
    _Complaints.as_json = on


def warn(sentence: str) -> None:
    """Print a warning; the command continues."""
    _print({"warning": sentence}, sentence)


def complain(command: str, sentence: str, status: int, code: ErrorCode | None = None) -> int:
    """Print the error that ended a command; returns `status`. `command`: e.g. `txbroker topics`. `code`: the broker's error code."""
    _print({"error": sentence, "command": command, "status": status, "code": None if code is None else code.name}, f"{command}: {sentence}")
    return status


def _print(row: dict[str, Any], sentence: str) -> None:
    with suppress(OSError):
        sys.stdout.flush()  # keep the order of output and warnings, if both go to the same file
    print(json.dumps(row) if _Complaints.as_json else visible(sentence), file=sys.stderr, flush=True)


def missing_library(feature: str, library: str) -> CommandFailed:
    """`feature` needs a Python library that is not installed in the environment of this command."""
    return CommandFailed(f"{feature} needs {library}, which is not installed: {sys.executable} -m pip install {library}")


def no_topic(name: str) -> CommandFailed:
    """The specified topic does not exist."""
    return CommandFailed(f"topic {name} does not exist; see `txbroker topics --list`, or create it with `txbroker topics --create`")


def client_failure(error: ClientError) -> CommandFailed:
    """The failure for an error of txbroker's own client, with what to do next."""
    if isinstance(error, RequestFailed):
        return broker_error(error.what, error.code, error.message)
    return no_topic(error.name) if isinstance(error, TopicMissing) else CommandFailed(str(error))
