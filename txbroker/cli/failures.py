"""How commands fail: one sentence on standard error that says what to do next, or a JSON object with --json; and the exit status."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from txbroker.cli.tables import visible
from txbroker.client.client_errors import ClientError, RequestFailed, TopicMissing
from txbroker.errors import ErrorCode

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandFailed(Exception):
    """The command failed (exit status 1). The text is for the terminal; `code` is the broker's error code, if it answered with one."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class BadUsage(CommandFailed):
    """Flags that cannot be used together, or an invalid value of one (exit status 2)."""


# What to do about frequent errors.
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see `txbroker topics --list`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts that",
    ErrorCode.INVALID_REPLICATION_FACTOR: "choose a --replication-factor that the brokers suffice for",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true in the broker's configuration",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes and the producer's max.request.size",
    ErrorCode.NOT_ENOUGH_REPLICAS: "wait for replicas to come back, or lower min.insync.replicas",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `txbroker groups --list`",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.KAFKA_STORAGE_ERROR: "see the broker's log for the log directory that failed",
    ErrorCode.NOT_CONTROLLER: "try again in a moment",
    ErrorCode.INVALID_RECORD: "a compacted topic requires keys: use --reader-property parse.key=true",
}


# What brokers on Linux say of a full disk, and of a used up quota of it.
_NO_ROOM = ("No space left on device", "Disk quota exceeded")


def broker_error(what: str, code: int, message: str | None) -> CommandFailed:
    """A request was answered with an error code; `what` says what was wanted, `message` is the broker's."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return CommandFailed(f"{what}: the broker answered with error {code}, which this version of txbroker does not know")
    text = (message or known.name.lower().replace("_", " ")).rstrip(".")
    advice = _ADVICE.get(known)
    if known is ErrorCode.KAFKA_STORAGE_ERROR and any(sign in text for sign in _NO_ROOM):
        text, advice = f"the broker's disk is full: {text}", "free space there, for example with `txbroker delete-records`"
    return CommandFailed(f"{what}: {text} ({known.name})" + (f"; {advice}" if advice else ""), known)


class _Complaints:
    """How warnings and errors are printed: set once for a command."""

    as_json = False


def complain_as_json(on: bool) -> None:
    """Print warnings and errors as JSON objects, or as sentences."""
    _Complaints.as_json = on


def warn(sentence: str) -> None:
    """A warning, after which the command continues."""
    _print({"warning": sentence}, sentence)


def complain(command: str, sentence: str, status: int, code: ErrorCode | None = None) -> int:
    """The error that ends a command, which is its name after `txbroker`; returns the exit status. `code`: that of the broker."""
    _print({"error": sentence, "command": command, "status": status, "code": None if code is None else code.name}, f"{command}: {sentence}")
    return status


def _print(row: dict[str, Any], sentence: str) -> None:
    with suppress(OSError):
        sys.stdout.flush()  # a warning follows the line that it is about, if both go to the same place
    print(json.dumps(row) if _Complaints.as_json else visible(sentence), file=sys.stderr, flush=True)


def missing_library(feature: str, library: str) -> CommandFailed:
    """`feature` needs a Python library that is not installed in the environment that this command runs in."""
    return CommandFailed(f"{feature} needs {library}, which is not installed: {sys.executable} -m pip install {library}")


def no_topic(name: str) -> CommandFailed:
    """A topic that was named does not exist."""
    return CommandFailed(f"topic {name} does not exist; see `txbroker topics --list`, or create it with `txbroker topics --create`")


def client_failure(error: ClientError) -> CommandFailed:
    """An error of our own client, with what to do about it."""
    if isinstance(error, RequestFailed):
        return broker_error(error.what, error.code, error.message)
    return no_topic(error.name) if isinstance(error, TopicMissing) else CommandFailed(str(error))
