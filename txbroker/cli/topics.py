"""`txbroker topics`: create, list, describe, alter and delete topics (Kafka's kafka-topics)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.failures import DONE, BadUsage, CommandFailed, broker_error, no_topic
from txbroker.cli.results import Row, results
from txbroker.cli.tables import paragraph, table
from txbroker.errors import ErrorCode
from txbroker.names import id_to_text

DESCRIPTION = """\
Create, list, describe, alter and delete topics.

  txbroker topics --bootstrap-server 127.0.0.1:9092 --create --topic hello --partitions 3 --config retention.ms=3600000
  txbroker topics --bootstrap-server 127.0.0.1:9092 --describe --topic hello
"""

ACTIONS = {
    "create": "create a topic",
    "list": "print the names of topics",
    "describe": "show partitions, leaders, replicas and configurations",
    "alter": "give a topic more --partitions, or other --config values",
    "delete": "delete topics with all their records",
}

Topic = Mapping[str, Any]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("topics", help="create, list, describe, alter and delete topics", description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, text in ACTIONS.items():
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    topic_help = "the topic's name; but for --create also a regular expression, if no topic has that name"
    parser.add_argument("--topic", metavar="NAME", help=topic_help)
    parser.add_argument("--partitions", type=number(1), metavar="N", help="with --create (default: num.partitions of the broker), --alter")
    factor_help = "with --create (default: default.replication.factor of the broker)"
    parser.add_argument("--replication-factor", type=number(1), metavar="N", help=factor_help)
    add_properties(parser, "--config", "a configuration of the topic, with --create and --alter")
    parser.add_argument("--if-not-exists", action="store_true", help="with --create: a topic that exists is no error")
    parser.add_argument("--if-exists", action="store_true", help="with --describe, --alter, --delete: no error without the topic")
    parser.add_argument("--exclude-internal", action="store_true", help="with --list, --describe: leave out topics like __consumer_offsets")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    check(arguments)
    with clients.administering(arguments) as admin:
        _DO[arguments.action](admin, arguments)
    return DONE


def check(arguments: argparse.Namespace) -> None:
    """BadUsage when flags do not go together."""
    action = arguments.action
    if action in ("create", "alter", "delete") and not arguments.topic:
        raise BadUsage(f"--{action} needs --topic")
    if action == "alter" and arguments.partitions is None and not arguments.config:
        raise BadUsage("--alter needs --partitions or --config")
    allowed = {
        "--partitions": (arguments.partitions is not None, ("create", "alter")),
        "--replication-factor": (arguments.replication_factor is not None, ("create",)),
        "--config": (bool(arguments.config), ("create", "alter")),
        "--if-not-exists": (arguments.if_not_exists, ("create",)),
        "--if-exists": (arguments.if_exists, ("describe", "alter", "delete")),
        "--exclude-internal": (arguments.exclude_internal, ("list", "describe")),
    }
    for flag, (given, actions) in allowed.items():
        if given and action not in actions:
            raise BadUsage(f"{flag} goes with {' and '.join(f'--{other}' for other in actions)}, not with --{action}")


def select(names: Iterable[str], wanted: str | None) -> list[str]:
    """The names that are meant, sorted: all, or the one of that name, or those that the regular expression matches whole."""
    known = sorted(names)
    if wanted is None:
        return known
    if wanted in known:
        return [wanted]
    try:
        pattern = re.compile(wanted.replace(",", "|"))  # as Kafka: a list is an expression too
    except re.error as error:
        raise BadUsage(f"--topic {wanted!r} is neither a topic nor a regular expression ({error})") from None
    return [name for name in known if pattern.fullmatch(name)]


def _selected(admin: Any, arguments: argparse.Namespace) -> list[Topic]:
    found: dict[str, Topic] = {topic["name"]: topic for topic in admin.describe_topics()}
    if arguments.exclude_internal:
        found = {name: topic for name, topic in found.items() if not topic["is_internal"]}
    names = select(found, arguments.topic)
    if not names and arguments.topic and arguments.action != "list" and not arguments.if_exists:
        raise no_topic(arguments.topic)
    return [found[name] for name in names]


def _create(admin: Any, arguments: argparse.Namespace) -> None:
    wanted: dict[str, Any] = {"configs": arguments.config}
    if arguments.partitions is not None:
        wanted["num_partitions"] = arguments.partitions
    if arguments.replication_factor is not None:
        wanted["replication_factor"] = arguments.replication_factor
    (answer,) = admin.create_topics({arguments.topic: wanted}, raise_errors=False)["topics"]
    code = answer["error_code"]
    if code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
        return
    if code != ErrorCode.NONE:
        raise broker_error(f"topic {arguments.topic} was not created", code, answer["error_message"])
    results(arguments).done(f"Created topic {arguments.topic}.", topic=arguments.topic, action="created")


def _list(admin: Any, arguments: argparse.Namespace) -> None:
    for topic in _selected(admin, arguments):
        name = topic["name"]
        results(arguments).done(name, topic=name, internal=bool(topic["is_internal"]))


def _alter(admin: Any, arguments: argparse.Namespace) -> None:
    names = [topic["name"] for topic in _selected(admin, arguments)]
    if arguments.partitions is not None and names:
        answer = admin.create_partitions(dict.fromkeys(names, arguments.partitions), raise_errors=False)
        for result in answer.results:
            if result.error_code != ErrorCode.NONE:
                raise broker_error(f"topic {result.name} was not altered", result.error_code, result.error_message)
            done = f"Topic {result.name} has {arguments.partitions} partitions now."
            results(arguments).done(done, topic=result.name, action="altered", partition_count=arguments.partitions)
    if arguments.config and names:
        _alter_configs(admin, names, arguments)


def _alter_configs(admin: Any, names: Sequence[str], arguments: argparse.Namespace) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict(arguments.config)) for name in names]
    for name, result in admin.alter_configs(resources, raise_on_unknown=False, incremental=True)["topic"].items():
        if result != "OK":
            raise CommandFailed(f"topic {name} was not altered: {result.partition('Error: ')[2] or result}; correct --config")
        results(arguments).done(f"Altered the configuration of topic {name}.", topic=name, action="altered", configs=arguments.config)


def _delete(admin: Any, arguments: argparse.Namespace) -> None:
    names = [topic["name"] for topic in _selected(admin, arguments)]
    if not names:
        return
    for result in admin.delete_topics(names, raise_errors=False)["topics"]:
        if result["error_code"] != ErrorCode.NONE:
            raise broker_error(f"topic {result['name']} was not deleted", result["error_code"], result["error_message"])
        results(arguments).done(f"Deleted topic {result['name']}.", topic=result["name"], action="deleted")


def _describe(admin: Any, arguments: argparse.Namespace) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    topics = _selected(admin, arguments)
    configs: Mapping[str, Any] = {}
    if topics:
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in topics])["topic"]
    shown = results(arguments)
    for topic in topics:
        row = description(topic, {key: entry["value"] for key, entry in sorted(configs.get(topic["name"], {}).items())})
        shown.either(row, partial(plain_description, row), partial(terminal_description, row))


def description(topic: Topic, configs: Mapping[str, str]) -> Row:
    """What is shown of a topic, as --json prints it."""
    partitions = sorted(topic["partitions"], key=lambda partition: int(partition["partition_index"]))
    topic_id = bytes.fromhex((topic.get("topic_id") or "").replace("-", ""))
    return {
        "topic": topic["name"],
        "topic_id": id_to_text(topic_id) or None,
        "internal": bool(topic.get("is_internal")),
        "partition_count": len(partitions),
        "replication_factor": len(partitions[0]["replica_nodes"]) if partitions else 0,
        "configs": configs,
        "partitions": [_partition(partition) for partition in partitions],
    }


def _partition(partition: Mapping[str, Any]) -> Row:
    leader = partition["leader_id"]
    lists = {"replicas": partition["replica_nodes"], "isr": partition["isr_nodes"]}
    return {"partition": partition["partition_index"], "leader": None if leader < 0 else leader, **lists}


def _summary(row: Row) -> list[str]:
    return [
        f"Topic: {row['topic']}",
        f"TopicId: {row['topic_id'] or 'none'}",
        f"PartitionCount: {row['partition_count']}",
        f"ReplicationFactor: {row['replication_factor']}",
        f"Configs: {','.join(f'{key}={value}' for key, value in row['configs'].items())}",
    ]


def _cells(partition: Row) -> list[str]:
    leader = "none" if partition["leader"] is None else str(partition["leader"])
    return [str(partition["partition"]), leader, *(",".join(map(str, partition[key])) for key in ("replicas", "isr"))]


def plain_description(row: Row) -> list[str]:
    """A topic as Kafka's tool prints it, for scripts that read that: fields divided by tabs."""
    lines = ["\t".join(_summary(row))]
    for partition in row["partitions"]:
        index, leader, replicas, isr = _cells(partition)
        lines.append(f"\tTopic: {row['topic']}\tPartition: {index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}")
    return lines


def terminal_description(row: Row, width: int) -> list[str]:
    """A topic for people: no line is wider than the terminal."""
    rows = table(("Partition", "Leader", "Replicas", "Isr"), [_cells(partition) for partition in row["partitions"]], width - 2)
    return [*paragraph("  ".join(_summary(row)).replace(",", ", "), width), *(f"  {line}" for line in rows)]


_DO = {"create": _create, "list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
