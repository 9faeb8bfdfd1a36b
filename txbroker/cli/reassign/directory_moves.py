"""Moves of replicas between the log directories of their brokers (KIP-113)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli.reassign.reassignment_file import ANY, Assignment
from txbroker.cli.results import Results, Row
from txbroker.console.failures import broker_error, warn
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

RETRY_S = 0.1


class Replica(NamedTuple):
    """A replica of a partition, on a broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


class Log(NamedTuple):
    """Where a replica is, and where it moves to, if it does. `lag`: the records that the copy does not have yet."""

    current: str | None = None
    future: str | None = None
    lag: int = 0


Logs = Mapping[Replica, Log]


def find_logs(admin: Any, partitions: Iterable[TopicPartition] | None = None) -> dict[Replica, Log]:
    """The log directories of all replicas of these partitions, or of all; without those of offline directories."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions or ():
        by_topic[partition.topic].append(partition.partition)
    found: dict[Replica, Log] = defaultdict(Log)
    for broker, directory, row in _described(admin.describe_log_dirs(dict(by_topic) if partitions is not None else None)):
        replica = Replica(TopicPartition(row["topic"], row["partition_index"]), broker)
        if row["is_future_key"]:
            found[replica] = found[replica]._replace(future=directory, lag=row["offset_lag"])
        else:
            found[replica] = found[replica]._replace(current=directory)
    return found


def _described(brokers: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for broker in brokers:
        for directory in broker["log_dirs"]:
            for topic in directory["topics"]:
                for partition in topic["partitions"]:
                    yield broker["broker"], directory["log_dir"], {**partition, "topic": topic["name"]}


def current_assignment(replicas: Mapping[TopicPartition, Sequence[int]], logs: Logs) -> dict[TopicPartition, Assignment]:
    """The present assignment; ANY for a replica whose directory is not known."""
    return {
        partition: Assignment(brokers, [logs.get(Replica(partition, broker), Log()).current or ANY for broker in brokers])
        for partition, brokers in replicas.items()
    }


def wanted_directories(wanted: Mapping[TopicPartition, Assignment]) -> dict[Replica, str]:
    """The log directories that replicas are to be in."""
    return {
        Replica(partition, broker): directory
        for partition, assignment in sorted(wanted.items())
        for broker, directory in zip(assignment.replicas, assignment.log_dirs, strict=True)
        if directory != ANY
    }


def move(admin: Any, shown: Results, moves: Mapping[Replica, str], timeout_ms: int) -> bool:
    """Have each broker move its replicas. Returns whether none was refused."""
    refused = 0
    deadline_s = time.monotonic() + timeout_ms / 1000
    left = dict(moves)
    while left:
        codes = {
            Replica(TopicPartition(replica.topic, replica.partition), replica.broker_id): error.errno
            for replica, error in admin.alter_replica_log_dirs(
                {(*replica.partition, replica.broker): directory for replica, directory in left.items()}
            ).items()
        }
        for replica, code in sorted(codes.items()):
            if code == ErrorCode.REPLICA_NOT_AVAILABLE and time.monotonic() < deadline_s:
                continue  # a new replica: its log is created in a moment
            directory = left.pop(replica)
            if code == ErrorCode.NONE:
                what = f"for replica {replica.partition} with broker {replica.broker}"
                shown.done(f"Successfully started moving log directory to {directory} {what}", **row(replica, directory), action="started")
            else:
                refused += 1
                problem = broker_error(f"replica {replica} was not moved to {directory}", code, None)
                warn(f"{problem}; see `txbroker log-dirs --describe`")
        if left:
            time.sleep(RETRY_S)
    return not refused


def row(replica: Replica, directory: str) -> dict[str, Any]:
    """A move as an object."""
    return {"topic": replica.partition.topic, "partition": replica.partition.partition, "broker": replica.broker, "log_dir": directory}


def show_states(shown: Results, wanted: Mapping[Replica, str], logs: Logs) -> bool:
    """Print the state of each move. Returns whether one is in progress."""
    moving = False
    for replica, directory in wanted.items():
        log = logs.get(replica, Log())
        state, sentence = move_state(replica, log, directory)
        moving |= log.future is not None
        about: Row = {"state": state, "current_log_dir": log.current, "future_log_dir": log.future, "lag": log.lag}
        shown.done(sentence, **row(replica, directory), **about)
    return moving


def move_state(replica: Replica, log: Log, wanted: str) -> tuple[str, str]:
    """The state of a move and a sentence about it, as Kafka's tool prints it."""
    place = f"Partition {replica.partition} on broker {replica.broker}"
    if log.current is None:
        return "missing", f"{place} is not found in any live log dir; there is likely an offline log directory on the broker."
    if log.current == wanted:
        return "completed", f"Reassignment of replica {replica} completed successfully."
    if log.future == wanted:
        return "in_progress", f"Reassignment of replica {replica} is still in progress."
    if log.future is not None:
        return "other_target", f"{place} is being moved to log dir {log.future} instead of {wanted}."
    return "not_started", f"{place} is not being moved from log dir {log.current} to {wanted}."


def cancel(admin: Any, shown: Results, wanted: Mapping[Replica, str], logs: Logs, timeout_ms: int) -> bool:
    """Cancel those of these moves that are in progress. Returns whether none was refused."""
    back = {
        replica: log.current
        for replica, log in sorted(logs.items())
        if log.current is not None and log.future is not None and wanted.get(replica) == log.future
    }
    if not back:
        shown.done("None of the specified partition moves are active.", cancelled=0)
        return True
    return move(admin, shown, back, timeout_ms)
