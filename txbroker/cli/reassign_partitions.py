"""`txbroker reassign-partitions`: move replicas between the log directories of their brokers (Kafka's kafka-reassign-partitions)."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number, numbers
from txbroker.cli.failures import DONE, FAILED, BadUsage, CommandFailed, broker_error, no_topic, warn
from txbroker.cli.partition_flags import Partition
from txbroker.cli.reassignment_file import ANY, Assignment, as_json, document, read_assignments, read_topics
from txbroker.cli.results import Results, results
from txbroker.errors import ErrorCode
from txbroker.names import amount

DESCRIPTION = """\
Move replicas from one log directory of their broker to another, while clients go on reading and writing. The replicas of a partition stay
on the brokers that they are on. On a cluster of Apache Kafka, kafka-reassign-partitions.sh moves them between brokers.

  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --generate --topics-to-move-json-file topics.json --broker-list 1001
  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --execute --reassignment-json-file move.json
  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --verify --reassignment-json-file move.json

--generate prints the current assignment of topics, in the format of --reassignment-json-file, and a proposal in which the broker chooses
the log directories. Write the paths to move to into log_dirs; "any" leaves a replica where it is. `txbroker log-dirs --describe` shows the
directories and the sizes of partitions.

  topics.json: {"topics": [{"topic": "hello"}], "version": 1}
  move.json:   {"partitions": [{"topic": "hello", "partition": 0, "replicas": [1001], "log_dirs": ["/data/2"]}], "version": 1}
"""

ACTIONS = {
    "generate": "print the current assignment of topics, and a proposed one",
    "execute": "start the moves of --reassignment-json-file",
    "verify": "show the progress of the moves of --reassignment-json-file",
    "cancel": "cancel the moves of --reassignment-json-file that are in progress",
    "list": "list all moves that are in progress",
}
TIMEOUT_MS = 10_000
RETRY_S = 0.1


class Replica(NamedTuple):
    """A replica of a partition, on a broker."""

    partition: Partition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


class Log(NamedTuple):
    """Where a replica is, and where it moves to, if it does. `lag`: the records that the copy does not have yet."""

    current: str | None = None
    future: str | None = None
    lag: int = 0


Logs = Mapping[Replica, Log]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("reassign-partitions", help="move replicas between log directories", description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, text in ACTIONS.items():
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="partitions with their replicas and log directories, see above")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE", help="with --generate: the topics, see above")
    parser.add_argument("--broker-list", type=numbers, metavar="ID,ID...", help="with --generate: the brokers of the proposed assignment")
    timeout_help = f"milliseconds to wait until the brokers have started the moves (default: {TIMEOUT_MS})"
    parser.add_argument("--timeout", type=number(0), default=TIMEOUT_MS, metavar="MS", help=timeout_help)
    parser.add_argument("--additional", action="store_true", help="accepted; moves can always be added to those in progress")
    parser.add_argument("--disable-rack-aware", action="store_true", help="accepted; racks play no part in moves within a broker")
    parser.add_argument("--preserve-throttles", action="store_true", help="accepted; throttles are never changed")
    parser.set_defaults(command=run)


def check(arguments: argparse.Namespace) -> None:
    """BadUsage if flags cannot be used together."""
    action = arguments.action
    with_file = ("execute", "verify", "cancel")
    if action in with_file and not arguments.reassignment_json_file:
        raise BadUsage(f"--{action} needs --reassignment-json-file")
    if action == "generate" and not (arguments.topics_to_move_json_file and arguments.broker_list):
        raise BadUsage("--generate needs --topics-to-move-json-file and --broker-list")
    allowed = {
        "--reassignment-json-file": (arguments.reassignment_json_file, with_file),
        "--topics-to-move-json-file": (arguments.topics_to_move_json_file, ("generate",)),
        "--broker-list": (arguments.broker_list, ("generate",)),
        "--additional": (arguments.additional, ("execute",)),
    }
    for flag, (given, actions) in allowed.items():
        if given and action not in actions:
            raise BadUsage(f"{flag} is only valid with {' and '.join(f'--{other}' for other in actions)}, not with --{action}")


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; 1 if a broker refuses a move. BadUsage, CommandFailed."""
    check(arguments)
    shown = results(arguments)
    wanted = read_assignments(arguments.reassignment_json_file) if arguments.reassignment_json_file else {}
    with clients.administering(arguments) as admin:
        if arguments.action == "generate":
            return _generate(admin, shown, read_topics(arguments.topics_to_move_json_file), arguments.broker_list)
        if arguments.action == "list":
            return _list(admin, shown)
        replicas = _replicas(admin, wanted)
        if arguments.action == "verify":
            return _verify(shown, wanted, replicas, _logs(admin, wanted))
        _check_replicas(admin, wanted, replicas)
        if arguments.action == "cancel":
            return _cancel(admin, shown, wanted, arguments.timeout)
        return _execute(admin, shown, wanted, arguments.timeout)


# State of the cluster


def _replicas(admin: Any, partitions: Iterable[Partition]) -> dict[Partition, list[int]]:
    """The brokers of those of these partitions that exist."""
    topics = admin.describe_topics(sorted({partition.topic for partition in partitions}))
    return {
        Partition(topic["name"], partition["partition_index"]): list(partition["replica_nodes"])
        for topic in topics
        for partition in topic["partitions"]
    }


def _brokers(admin: Any) -> list[int]:
    return sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])


def _check_replicas(admin: Any, wanted: Mapping[Partition, Assignment], replicas: Mapping[Partition, Sequence[int]]) -> None:
    """CommandFailed for what is missing, and for replicas that would move to other brokers."""
    missing = [partition for partition in wanted if partition not in replicas]
    if missing:
        raise CommandFailed(f"Unable to find partition: {', '.join(map(str, missing))}; see `txbroker topics --describe`")
    known = _brokers(admin)
    for partition, assignment in wanted.items():
        unknown = [broker for broker in assignment.replicas if broker not in known]
        if unknown:
            raise CommandFailed(f"Unknown broker id {unknown[0]} for {partition}; brokers are {', '.join(map(str, known))}")
        if list(assignment.replicas) != list(replicas[partition]):
            now, then = (",".join(map(str, each)) for each in (replicas[partition], assignment.replicas))
            raise CommandFailed(
                f"{partition} has the replicas {now}, not {then}: this command moves replicas between the log directories of their brokers "
                "only; use kafka-reassign-partitions.sh to move them between brokers"
            )


def _logs(admin: Any, partitions: Iterable[Partition] | None = None) -> dict[Replica, Log]:
    """The log directories of all replicas of these partitions, or of all; without those of offline directories."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions or ():
        by_topic[partition.topic].append(partition.number)
    found: dict[Replica, Log] = defaultdict(Log)
    for broker, directory, row in _described(admin.describe_log_dirs(dict(by_topic) if partitions is not None else None)):
        replica = Replica(Partition(row["topic"], row["partition_index"]), broker)
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


def _current(replicas: Mapping[Partition, Sequence[int]], logs: Logs) -> dict[Partition, Assignment]:
    """The present assignment; ANY for a replica whose directory is not known."""
    return {
        partition: Assignment(brokers, [logs.get(Replica(partition, broker), Log()).current or ANY for broker in brokers])
        for partition, brokers in replicas.items()
    }


def _moves(wanted: Mapping[Partition, Assignment]) -> dict[Replica, str]:
    """The log directories that replicas are to be in."""
    return {
        Replica(partition, broker): directory
        for partition, assignment in sorted(wanted.items())
        for broker, directory in zip(assignment.replicas, assignment.log_dirs, strict=True)
        if directory != ANY
    }


# Actions


def _generate(admin: Any, shown: Results, topics: Sequence[str], brokers: Sequence[int]) -> int:
    replicas = _replicas(admin, [Partition(topic, 0) for topic in topics])
    for topic in topics:
        if Partition(topic, 0) not in replicas:
            raise no_topic(topic)
    known = _brokers(admin)
    if sorted(set(brokers) & set(known)) != known:
        present = ", ".join(map(str, known))
        raise CommandFailed(f"--broker-list must have all brokers ({present}): this command does not move replicas between brokers")
    current = _current(replicas, _logs(admin, replicas))
    proposed = {partition: Assignment(assignment.replicas, [ANY] * len(assignment.replicas)) for partition, assignment in current.items()}
    lines = ["Current partition replica assignment", as_json(current), ""]
    lines += ["Proposed partition reassignment configuration", as_json(proposed), ""]
    shown.either({"current": document(current), "proposed": document(proposed)}, lambda: lines)
    return DONE


def _execute(admin: Any, shown: Results, wanted: Mapping[Partition, Assignment], timeout_ms: int) -> int:
    current = _current({partition: assignment.replicas for partition, assignment in wanted.items()}, _logs(admin, wanted))
    if not shown.as_json:
        for line in (
            "Current partition replica assignment", "", as_json(current), "",
            "Save this to use as the --reassignment-json-file option during rollback",
        ):  # fmt: skip
            shown.line(line)
    moves = _moves(wanted)
    if not moves:
        warn('log_dirs is "any" for all replicas: nothing is moved')
    return _alter(admin, shown, moves, timeout_ms)


def _alter(admin: Any, shown: Results, moves: Mapping[Replica, str], timeout_ms: int) -> int:
    """Have each broker move its replicas; 1 if one is refused."""
    refused = 0
    deadline_s = time.monotonic() + timeout_ms / 1000
    left = dict(moves)
    while left:
        codes = {
            Replica(Partition(replica.topic, replica.partition), replica.broker_id): error.errno
            for replica, error in admin.alter_replica_log_dirs(
                {(*replica.partition, replica.broker): directory for replica, directory in left.items()}
            ).items()
        }
        for replica, code in sorted(codes.items()):
            if code == ErrorCode.REPLICA_NOT_AVAILABLE and time.monotonic() < deadline_s:
                continue  # a new partition: its log is created in a moment
            directory = left.pop(replica)
            if code == ErrorCode.NONE:
                what = f"for replica {replica.partition} with broker {replica.broker}"
                shown.done(f"Successfully started moving log directory to {directory} {what}", **_row(replica, directory), action="started")
            else:
                refused += 1
                problem = broker_error(f"replica {replica} was not moved to {directory}", code, None)
                warn(f"{problem}; see `txbroker log-dirs --describe`")
        if left:
            time.sleep(RETRY_S)
    return FAILED if refused else DONE


def _row(replica: Replica, directory: str) -> dict[str, Any]:
    return {"topic": replica.partition.topic, "partition": replica.partition.number, "broker": replica.broker, "log_dir": directory}


def _verify(
    shown: Results, wanted: Mapping[Partition, Assignment], replicas: Mapping[Partition, Sequence[int]], logs: Mapping[Replica, Log]
) -> int:
    if not shown.as_json:
        shown.line("Status of partition reassignment:")
        for partition, assignment in sorted(wanted.items()):
            now, then = (",".join(map(str, brokers)) for brokers in (replicas.get(partition, ()), assignment.replicas))
            completed = f"Reassignment of partition {partition} is completed."
            other = f"There is no active reassignment of partition {partition}, but replica set is {now} rather than {then}."
            shown.line(completed if now == then else other)
    for replica, directory in _moves({partition: wanted[partition] for partition in wanted if partition in replicas}).items():
        log = logs.get(replica, Log())
        state, sentence = move_state(replica, log, directory)
        row = {**_row(replica, directory), "state": state, "current_log_dir": log.current, "future_log_dir": log.future, "lag": log.lag}
        shown.done(sentence, **row)
    return DONE


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


def _cancel(admin: Any, shown: Results, wanted: Mapping[Partition, Assignment], timeout_ms: int) -> int:
    logs = _logs(admin, wanted)
    targets = _moves(wanted)
    back = {
        replica: log.current
        for replica, log in sorted(logs.items())
        if log.current is not None and log.future is not None and targets.get(replica) == log.future
    }
    if not back:
        shown.done("None of the specified partition moves are active.", cancelled=0)
        return DONE
    return _alter(admin, shown, back, timeout_ms)


def _list(admin: Any, shown: Results) -> int:
    moving = {replica: log for replica, log in sorted(_logs(admin).items()) if log.future is not None}
    if shown.as_json:
        for replica, log in moving.items():
            shown.json({**_row(replica, str(log.future)), "current_log_dir": log.current, "lag": log.lag})
    elif not moving:
        shown.line("No partition reassignments found.")
    else:
        shown.line("Current partition reassignments:")
        for replica, log in moving.items():
            shown.line(f"{replica}: moving from {log.current or 'an offline log dir'} to {log.future}, {amount(log.lag, 'record')} behind.")
    return DONE
