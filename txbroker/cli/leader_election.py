"""`txbroker leader-election`: elect the leaders of partitions (Kafka's kafka-leader-election)."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number
from txbroker.cli.results import Results, results
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed, broker_error, warn
from txbroker.console.input_files import read_json
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

DESCRIPTION = """\
Elect leaders. A preferred election makes the first replica of a partition its leader, if it is in sync. An unclean election makes any live
replica the leader of a partition that has none: the records that only the other replicas have are lost.

  txbroker leader-election --bootstrap-server 127.0.0.1:9092 --election-type preferred --all-topic-partitions
  txbroker leader-election --bootstrap-server 127.0.0.1:9092 --election-type unclean --topic hello --partition 0

The file of --path-to-json-file has this format: {"partitions": [{"topic": "hello", "partition": 0}]}
"""

TYPES = {"preferred": 0, "unclean": 1}
TIMEOUT_MS = 30_000
SHAPE = '{"partitions": [{"topic": "hello", "partition": 0}]}'


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("leader-election", help="elect the leaders of partitions", description=DESCRIPTION)
    add_client(parser, "--admin.config")
    parser.add_argument("--election-type", required=True, type=str.lower, choices=TYPES, help="preferred or unclean")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="NAME", help="the topic of --partition")
    which.add_argument("--all-topic-partitions", action="store_true", help="all partitions that need an election")
    which.add_argument("--path-to-json-file", metavar="FILE", help="partitions, see above")
    parser.add_argument("--partition", type=number(0), metavar="N", help="with --topic: the number of the partition")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Elect; 1 if an election failed. BadUsage, CommandFailed."""
    if (arguments.topic is None) != (arguments.partition is None):
        raise BadUsage("--topic and --partition belong together; name both, or neither")
    wanted: list[TopicPartition] | None = None
    if arguments.topic is not None:
        wanted = [TopicPartition(arguments.topic, arguments.partition)]
    elif arguments.path_to_json_file is not None:
        wanted = read_partitions(arguments.path_to_json_file)
    with clients.administering(arguments) as admin:
        answers = _elect(admin, TYPES[arguments.election_type], wanted)
    return _show(results(arguments), arguments.election_type, answers)


def read_partitions(path: str) -> list[TopicPartition]:
    """The partitions of a file; CommandFailed."""
    content = read_json(path)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CommandFailed(f"{path} has no partitions; the format is {SHAPE}")
    found = []
    for entry in entries:
        topic, index = (entry.get(key) if isinstance(entry, dict) else None for key in ("topic", "partition"))
        if not isinstance(topic, str) or type(index) is not int or not 0 <= index < 2**31:
            raise CommandFailed(f"{path} has an invalid entry {str(entry)[:100]}; the format is {SHAPE}")
        found.append(TopicPartition(topic, index))
    if len(set(found)) < len(found):
        raise CommandFailed(f"{path} has a partition twice; remove one of the entries")
    return found


def _elect(admin: Any, election_type: int, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, tuple[int, str | None]]:
    """The error code and message of each partition, by the controller."""
    from kafka.protocol.admin import ElectLeadersRequest

    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in wanted or ():
        by_topic[partition.topic].append(partition.partition)
    topics = None if wanted is None else list(by_topic.items())
    response = clients.send_to_controller(
        admin, ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
    )
    if response.error_code != ErrorCode.NONE:
        raise broker_error("no leaders were elected", response.error_code, None)
    return {
        TopicPartition(result.topic, answer.partition_id): (answer.error_code, answer.error_message)
        for result in response.replica_election_results
        for answer in result.partition_result
    }


def _show(shown: Results, kind: str, answers: dict[TopicPartition, tuple[int, str | None]]) -> int:
    ordered = sorted(answers.items())
    if shown.as_json:
        states: dict[int, str] = {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "not_needed"}
        for partition, (code, _) in ordered:
            shown.json({"topic": partition.topic, "partition": partition.partition, "state": states.get(code, "failed")})
    else:
        for code, sentence in (
            (ErrorCode.NONE, f"Successfully completed leader election ({kind.upper()}) for partitions"),
            (ErrorCode.ELECTION_NOT_NEEDED, "Valid replica already elected for partitions"),
        ):
            these = [str(partition) for partition, (found, _) in ordered if found == code]
            if these:
                shown.line(f"{sentence} {', '.join(these)}")
    failed = [item for item in ordered if item[1][0] not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
    for partition, (code, message) in failed:
        warn(f"{broker_error(f'no leader was elected for {partition}', code, message)}; see `txbroker topics --describe`")
    return FAILED if failed else DONE
