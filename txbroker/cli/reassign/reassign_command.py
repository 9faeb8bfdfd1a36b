"""`txbroker reassign-partitions`: move replicas between brokers and log directories (Kafka's kafka-reassign-partitions)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number, numbers
from txbroker.cli.ongoing_reassignments import Ongoing, find_ongoing
from txbroker.cli.reassign import broker_moves, directory_moves, throttles
from txbroker.cli.reassign.broker_moves import names
from txbroker.cli.reassign.directory_moves import current_assignment, find_logs, wanted_directories
from txbroker.cli.reassign.reassignment_file import ANY, Assignment, as_json, document, read_assignments, read_topics
from txbroker.cli.results import Results, results
from txbroker.cluster.placement import place
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed, no_topic
from txbroker.errors import BrokerError
from txbroker.names import TopicPartition, amount

DESCRIPTION = """\
Move replicas to other brokers of a cluster, or to another log directory of their broker, while clients go on reading and writing.

  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --generate --topics-to-move-json-file topics.json --broker-list 1,2,3
  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --execute --reassignment-json-file move.json --throttle 50000000
  txbroker reassign-partitions --bootstrap-server 127.0.0.1:9092 --verify --reassignment-json-file move.json

--generate prints the current assignment of topics, in the format of --reassignment-json-file, and a proposal. log_dirs is optional: "any"
leaves the choice of a log directory to the broker, which leaves a replica where it is. `txbroker log-dirs --describe` shows the directories
and the sizes of partitions. Run --verify until all reassignments are complete: it removes the limits of --throttle.

  topics.json: {"topics": [{"topic": "hello"}], "version": 1}
  move.json:   {"partitions": [{"topic": "hello", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data/2"]}], "version": 1}
"""

ACTIONS = {
    "generate": "print the current assignment of topics, and a proposed one",
    "execute": "start the moves of --reassignment-json-file",
    "verify": "show the progress of the moves of --reassignment-json-file; remove throttles when all are complete",
    "cancel": "cancel the moves of --reassignment-json-file that are in progress, and remove throttles",
    "list": "list all moves that are in progress",
}
TIMEOUT_MS = 10_000


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    summary = "move replicas between brokers and log directories"
    parser = subparsers.add_parser("reassign-partitions", help=summary, description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, text in ACTIONS.items():
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="partitions with their replicas and log directories, see above")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE", help="with --generate: the topics, see above")
    parser.add_argument("--broker-list", type=numbers, metavar="ID,ID...", help="with --generate: the brokers of the proposed assignment")
    throttle_help = "with --execute: limit for moves between brokers, to and from each broker, in bytes per second"
    parser.add_argument("--throttle", type=number(1), metavar="RATE", help=throttle_help)
    directory_help = "with --execute: limit for moves between log directories of a broker, in bytes per second"
    parser.add_argument("--replica-alter-log-dirs-throttle", type=number(1), metavar="RATE", help=directory_help)
    timeout_help = f"milliseconds to wait until the brokers have started the moves (default: {TIMEOUT_MS})"
    parser.add_argument("--timeout", type=number(0), default=TIMEOUT_MS, metavar="MS", help=timeout_help)
    parser.add_argument("--additional", action="store_true", help="with --execute: also if other reassignments are in progress")
    rack_help = "with --generate: ignore the racks of brokers"
    parser.add_argument("--disable-rack-aware", action="store_true", help=rack_help)
    preserve_help = "with --verify and --cancel: do not remove throttles"
    parser.add_argument("--preserve-throttles", action="store_true", help=preserve_help)
    factor_help = "with --execute: refuse to change the number of replicas"
    parser.add_argument("--disallow-replication-factor-change", action="store_true", help=factor_help)
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
        "--disable-rack-aware": (arguments.disable_rack_aware, ("generate",)),
        "--additional": (arguments.additional, ("execute",)),
        "--throttle": (arguments.throttle, ("execute",)),
        "--replica-alter-log-dirs-throttle": (arguments.replica_alter_log_dirs_throttle, ("execute",)),
        "--disallow-replication-factor-change": (arguments.disallow_replication_factor_change, ("execute",)),
        "--preserve-throttles": (arguments.preserve_throttles, ("verify", "cancel")),
    }
    for flag, (given, actions) in allowed.items():
        if given and action not in actions:
            raise BadUsage(f"{flag} is only valid with {' and '.join(f'--{other}' for other in actions)}, not with --{action}")


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; 1 if a move is refused. BadUsage, CommandFailed."""
    check(arguments)
    shown = results(arguments)
    wanted = read_assignments(arguments.reassignment_json_file) if arguments.reassignment_json_file else {}
    with clients.administering(arguments) as admin:
        if arguments.action == "generate":
            topics = read_topics(arguments.topics_to_move_json_file)
            return _generate(admin, shown, topics, arguments.broker_list, racks=not arguments.disable_rack_aware)
        ongoing = find_ongoing(admin)
        if arguments.action == "list":
            return _list(admin, shown, ongoing)
        if arguments.action == "verify":
            return _verify(admin, shown, wanted, ongoing, keep=arguments.preserve_throttles)
        if arguments.action == "cancel":
            return _cancel(admin, shown, wanted, ongoing, arguments.timeout, keep=arguments.preserve_throttles)
        return _execute(admin, shown, wanted, ongoing, arguments)


# State of the cluster


def _replicas(admin: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """The brokers of all partitions of the topics of these partitions that exist."""
    topics = admin.describe_topics(sorted({partition.topic for partition in partitions}))
    return {
        TopicPartition(topic["name"], partition["partition_index"]): list(partition["replica_nodes"])
        for topic in topics
        for partition in topic["partitions"]
    }


def _brokers(admin: Any) -> dict[int, str | None]:
    """The live brokers and their racks."""
    brokers = admin.describe_cluster()["brokers"]
    return {broker["broker_id"]: broker.get("rack") for broker in sorted(brokers, key=lambda broker: int(broker["broker_id"]))}


def _check(admin: Any, wanted: Mapping[TopicPartition, Assignment], replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    """CommandFailed for partitions and brokers that do not exist."""
    missing = [partition for partition in wanted if partition not in replicas]
    if missing:
        raise CommandFailed(f"Unable to find partition: {', '.join(map(str, missing))}; see `txbroker topics --describe`")
    known = _brokers(admin)
    for partition, assignment in wanted.items():
        unknown = [broker for broker in assignment.replicas if broker not in known]
        if unknown:
            raise CommandFailed(f"Unknown broker id {unknown[0]} for {partition}; brokers are {', '.join(map(str, known))}")


# Actions


def _generate(admin: Any, shown: Results, topics: Sequence[str], brokers: Sequence[int], *, racks: bool) -> int:
    replicas = _replicas(admin, [TopicPartition(topic, 0) for topic in topics])
    for topic in topics:
        if TopicPartition(topic, 0) not in replicas:
            raise no_topic(topic)
    known = _brokers(admin)
    chosen = {broker: known[broker] for broker in brokers if broker in known}
    if racks and 0 < sum(rack is not None for rack in chosen.values()) < len(chosen):
        raise CommandFailed("not all brokers have a rack: set broker.rack of the others, or add --disable-rack-aware")
    current = current_assignment(replicas, find_logs(admin, replicas))
    proposed: dict[TopicPartition, Assignment] = {}
    for topic in topics:
        numbers_ = sorted(partition.partition for partition in replicas if partition.topic == topic)
        factor = len(replicas[TopicPartition(topic, 0)])
        try:
            placed = place(chosen if racks else dict.fromkeys(chosen), len(numbers_), factor, Random())
        except BrokerError as error:
            raise CommandFailed(f"{topic}: {error} Name more brokers that are alive in --broker-list.") from error
        proposed.update((TopicPartition(topic, index), Assignment(placed[index], [ANY] * factor)) for index in numbers_)
    lines = ["Current partition replica assignment", as_json(current), ""]
    lines += ["Proposed partition reassignment configuration", as_json(proposed), ""]
    shown.either({"current": document(current), "proposed": document(proposed)}, lambda: lines)
    return DONE


def _execute(
    admin: Any,
    shown: Results,
    wanted: Mapping[TopicPartition, Assignment],
    ongoing: Mapping[TopicPartition, Ongoing],
    arguments: argparse.Namespace,
) -> int:
    if not arguments.additional:
        broker_moves.check_none_ongoing(ongoing)
    replicas = _replicas(admin, wanted)
    _check(admin, wanted, replicas)
    targets = {partition: list(assignment.replicas) for partition, assignment in wanted.items()}
    before = {partition: replicas[partition] for partition in wanted}
    moves = wanted_directories(wanted)
    if not shown.as_json:
        current = current_assignment(before, find_logs(admin, wanted) if moves else {})
        for line in (
            "Current partition replica assignment", "", as_json(current), "",
            "Save this to use as the --reassignment-json-file option during rollback",
        ):  # fmt: skip
            shown.line(line)
    _throttle(admin, shown, arguments, throttles.Moves(targets, before, ongoing), {replica.broker for replica in moves})
    factor_may_change = not arguments.disallow_replication_factor_change
    started = broker_moves.reassign(admin, targets, arguments.timeout, factor_may_change=factor_may_change)
    if started:
        plural = "s" if len(started) > 1 else ""
        sentence = f"Successfully started partition reassignment{plural} for {names(started)}"
        shown.done(sentence, partitions=[str(partition) for partition in sorted(started)], action="started")
    done = len(started) == len(targets)
    return DONE if directory_moves.move(admin, shown, moves, arguments.timeout) and done else FAILED


def _throttle(admin: Any, shown: Results, arguments: argparse.Namespace, moves: throttles.Moves, moving: Iterable[int]) -> None:
    rate, directory_rate = arguments.throttle, arguments.replica_alter_log_dirs_throttle
    if (rate or directory_rate) and not shown.as_json:
        shown.line("Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.")
    if rate:
        throttles.limit(admin, shown, moves, rate)
    if directory_rate:
        throttles.limit_directories(admin, shown, moving, directory_rate)


def _verify(
    admin: Any, shown: Results, wanted: Mapping[TopicPartition, Assignment], ongoing: Mapping[TopicPartition, Ongoing], *, keep: bool
) -> int:
    replicas = _replicas(admin, wanted)
    broker_moves.show_states(shown, wanted, replicas, ongoing)
    moves = wanted_directories({partition: wanted[partition] for partition in wanted if partition in replicas})
    moving = directory_moves.show_states(shown, moves, find_logs(admin, wanted) if moves else {})
    if not moves and not shown.as_json:
        shown.line("")
    if not (ongoing or moving or keep):
        throttles.clear(admin, shown, _brokers(admin), {partition.topic for partition in wanted if partition in replicas})
    return DONE


def _cancel(
    admin: Any,
    shown: Results,
    wanted: Mapping[TopicPartition, Assignment],
    ongoing: Mapping[TopicPartition, Ongoing],
    timeout_ms: int,
    *,
    keep: bool,
) -> int:
    replicas = _replicas(admin, wanted)
    active = [partition for partition in wanted if partition in ongoing]
    done = True
    if active:
        cancelled = broker_moves.reassign(admin, dict.fromkeys(active), timeout_ms)
        if cancelled:
            plural = "s" if len(cancelled) > 1 else ""
            sentence = f"Successfully cancelled partition reassignment{plural} for: {names(cancelled)}"
            shown.done(sentence, partitions=[str(partition) for partition in sorted(cancelled)], action="cancelled")
        done = len(cancelled) == len(active)
    else:
        shown.done("None of the specified partition reassignments are active.", cancelled=0)
    moves = wanted_directories(wanted)
    done &= directory_moves.cancel(admin, shown, moves, find_logs(admin, wanted) if moves else {}, timeout_ms)
    if not keep:
        throttles.clear(admin, shown, _brokers(admin), {partition.topic for partition in wanted if partition in replicas})
    return DONE if done else FAILED


def _list(admin: Any, shown: Results, ongoing: Mapping[TopicPartition, Ongoing]) -> int:
    moving = {replica: log for replica, log in sorted(find_logs(admin).items()) if log.future is not None}
    if shown.as_json:
        for partition, found in sorted(ongoing.items()):
            lists = {name: list(brokers) for name, brokers in found._asdict().items()}
            shown.json({"topic": partition.topic, "partition": partition.partition, **lists})
        for replica, log in moving.items():
            shown.json({**directory_moves.row(replica, str(log.future)), "current_log_dir": log.current, "lag": log.lag})
    elif not (moving or ongoing):
        shown.line("No partition reassignments found.")
    else:
        shown.line("Current partition reassignments:")
        for partition, found in sorted(ongoing.items()):
            shown.line(f"{partition}: {found}")
        for replica, log in moving.items():
            shown.line(f"{replica}: moving from {log.current or 'an offline log dir'} to {log.future}, {amount(log.lag, 'record')} behind.")
    return DONE
