"""`txbroker topics`: create, list, describe, alter and delete topics (Kafka's kafka-topics)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.configs import Entity, alter
from txbroker.cli.partition_flags import topic_pattern
from txbroker.cli.results import results
from txbroker.cli.topic_describe import FILTERS, Topic, show, shown_id
from txbroker.console.failures import DONE, BadUsage, CommandFailed, broker_error, no_topic
from txbroker.errors import ErrorCode
from txbroker.names import amount

DESCRIPTION = """\
Create, list, describe, alter and delete topics.

  txbroker topics --bootstrap-server 127.0.0.1:9092 --create --topic hello --partitions 3 --config retention.ms=3600000
  txbroker topics --bootstrap-server 127.0.0.1:9092 --describe --topic hello
  txbroker topics --bootstrap-server 127.0.0.1:9092 --alter --topic hello --partitions 6

On a terminal, --describe shows one line for all partitions of an internal topic, unless --topic names it.
"""

ACTIONS = {
    "create": "create a topic",
    "list": "list the names of topics",
    "describe": "describe topics: partitions, leaders, replicas and configurations",
    "alter": "increase the number of partitions of a topic, or change its configuration",
    "delete": "delete topics and all their records",
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("topics", help="create, list, describe, alter and delete topics", description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, text in ACTIONS.items():
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    topic_help = "the name of a topic; except with --create it may be a regular expression for whole names"
    parser.add_argument("--topic", metavar="NAME", help=topic_help)
    partitions_help = "the number of partitions, with --create (default: num.partitions of the broker) and --alter"
    parser.add_argument("--partitions", type=number(1), metavar="N", help=partitions_help)
    factor_help = "the number of replicas, with --create (default: default.replication.factor of the broker)"
    parser.add_argument("--replication-factor", type=number(1), metavar="N", help=factor_help)
    add_properties(parser, "--config", "a configuration of the topic, with --create and --alter")
    assignment_help = "with --create and --alter: the brokers of each partition, with the preferred leader first: 1:2,2:3,3:1"
    parser.add_argument("--replica-assignment", type=assignment, metavar="ID:ID,...", help=assignment_help)
    parser.add_argument("--if-not-exists", action="store_true", help="with --create: do nothing if the topic exists")
    parser.add_argument("--if-exists", action="store_true", help="with --describe, --alter and --delete: ignore a missing topic")
    parser.add_argument("--exclude-internal", action="store_true", help="with --list and --describe: exclude internal topics")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe: the topic with this id")
    for flag, text in FILTERS.items():
        parser.add_argument(flag, action="store_true", help=f"with --describe: {text}")
    parser.add_argument("--topics-with-overrides", action="store_true", help="with --describe: only topics that override configurations")
    parser.set_defaults(command=run)


def assignment(text: str) -> list[list[int]]:
    """The type of --replica-assignment: the brokers of each partition."""
    partitions = [part.split(":") for part in text.split(",")]
    if not all(broker.isascii() and broker.isdecimal() for brokers in partitions for broker in brokers):
        raise argparse.ArgumentTypeError(f"must be the brokers of each partition, like 1:2,2:3,3:1, not {text!r}")
    return [list(map(int, brokers)) for brokers in partitions]


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    check(arguments)
    with clients.administering(arguments) as admin:
        _DO[arguments.action](admin, arguments)
    return DONE


def check(arguments: argparse.Namespace) -> None:
    """BadUsage if flags cannot be used together."""
    action = arguments.action
    if action in ("create", "alter", "delete") and not arguments.topic:
        raise BadUsage(f"--{action} needs --topic")
    if action == "alter" and arguments.partitions is None and not arguments.config:
        raise BadUsage("--alter needs --partitions or --config")
    if arguments.replica_assignment is not None:
        if action == "create" and (arguments.partitions or arguments.replication_factor):
            raise BadUsage("--replica-assignment determines the number of partitions and replicas; leave out the flags for them")
        if action == "alter" and len(arguments.replica_assignment) != arguments.partitions:
            raise BadUsage("--replica-assignment needs the brokers of all partitions, as many as --partitions")
    filters = _filters(arguments)
    if len(filters) + arguments.topics_with_overrides > 1:
        raise BadUsage(f"{filters[0]} cannot be used with {(filters[1:] or ['--topics-with-overrides'])[0]}")
    if arguments.topic_id is not None and arguments.topic is not None:
        raise BadUsage("--topic-id and --topic cannot be used together")
    allowed = {
        "--replica-assignment": (arguments.replica_assignment is not None, ("create", "alter")),
        "--topic-id": (arguments.topic_id is not None, ("describe",)),
        "--topics-with-overrides": (arguments.topics_with_overrides, ("describe",)),
        **dict.fromkeys(filters, (True, ("describe",))),
        "--partitions": (arguments.partitions is not None, ("create", "alter")),
        "--replication-factor": (arguments.replication_factor is not None, ("create",)),
        "--config": (bool(arguments.config), ("create", "alter")),
        "--if-not-exists": (arguments.if_not_exists, ("create",)),
        "--if-exists": (arguments.if_exists, ("describe", "alter", "delete")),
        "--exclude-internal": (arguments.exclude_internal, ("list", "describe")),
    }
    for flag, (given, actions) in allowed.items():
        if given and action not in actions:
            raise BadUsage(f"{flag} is only valid with {' and '.join(f'--{other}' for other in actions)}, not with --{action}")


def only(arguments: argparse.Namespace) -> str | None:
    """The given flag of `FILTERS`, if any."""
    return next(iter(_filters(arguments)), None)


def _filters(arguments: argparse.Namespace) -> list[str]:
    return [flag for flag in FILTERS if getattr(arguments, flag[2:].replace("-", "_"))]


def select(names: Iterable[str], wanted: str | None) -> list[str]:
    """The selected names, sorted: all, or the one of that name, or those that the regular expression matches."""
    known = sorted(names)
    if wanted is None:
        return known
    if wanted in known:
        return [wanted]
    pattern = topic_pattern(wanted, "--topic")
    return [name for name in known if pattern.fullmatch(name)]


def describe(admin: Any, arguments: argparse.Namespace) -> None:
    """Describe topics, or the partitions that a flag selects."""
    named = arguments.topic is not None or arguments.topic_id is not None
    topics = _selected(admin, arguments)
    show(results(arguments), admin, topics, only(arguments), arguments.topics_with_overrides, fold_internal=not named)


def _selected(admin: Any, arguments: argparse.Namespace) -> list[Topic]:
    if arguments.topic_id is not None:
        return [_by_id(admin, arguments.topic_id)]
    found: dict[str, Topic] = {topic["name"]: topic for topic in admin.describe_topics()}
    if arguments.exclude_internal:
        found = {name: topic for name, topic in found.items() if not topic["is_internal"]}
    names = select(found, arguments.topic)
    if not names and arguments.topic and arguments.action != "list" and not arguments.if_exists:
        raise no_topic(arguments.topic)
    return [found[name] for name in names]


def _by_id(admin: Any, topic_id: str) -> Topic:
    for topic in admin.describe_topics():
        if shown_id(topic) == topic_id:
            return dict(topic)
    raise CommandFailed(f"there is no topic with the id {topic_id}; see `txbroker topics --describe`")


def _create(admin: Any, arguments: argparse.Namespace) -> None:
    wanted: dict[str, Any] = {"configs": arguments.config}
    if arguments.partitions is not None:
        wanted["num_partitions"] = arguments.partitions
    if arguments.replication_factor is not None:
        wanted["replication_factor"] = arguments.replication_factor
    if arguments.replica_assignment is not None:
        wanted["assignments"] = dict(enumerate(arguments.replica_assignment))
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
    topics = _selected(admin, arguments)
    names = [topic["name"] for topic in topics]
    if arguments.partitions is not None and names:
        wanted = {topic["name"]: _new_partitions(topic, arguments) for topic in topics}
        answer = admin.create_partitions(wanted, raise_errors=False)
        for result in answer.results:
            if result.error_code != ErrorCode.NONE:
                raise broker_error(f"topic {result.name} was not altered", result.error_code, result.error_message)
            done = f"Topic {result.name} now has {amount(arguments.partitions, 'partition')}."
            results(arguments).done(done, topic=result.name, action="altered", partition_count=arguments.partitions)
    if arguments.config and names:
        _alter_configs(admin, names, arguments)


def _new_partitions(topic: Topic, arguments: argparse.Namespace) -> Any:
    """The number of partitions, with the brokers of the new ones if there is --replica-assignment (which has all partitions)."""
    if arguments.replica_assignment is None:
        return arguments.partitions
    return {"count": arguments.partitions, "assignments": arguments.replica_assignment[len(topic["partitions"]):]}


def _alter_configs(admin: Any, names: Sequence[str], arguments: argparse.Namespace) -> None:
    for name in names:
        alter(admin, Entity("topics", name), arguments.config)
        results(arguments).done(f"Altered the configuration of topic {name}.", topic=name, action="altered", configs=arguments.config)


def _delete(admin: Any, arguments: argparse.Namespace) -> None:
    names = [topic["name"] for topic in _selected(admin, arguments)]
    if not names:
        return
    for result in admin.delete_topics(names, raise_errors=False)["topics"]:
        if result["error_code"] == ErrorCode.REQUEST_TIMED_OUT:
            waits = "its deletion ends when every broker with a replica of it has answered, also one that is stopped now"
            raise CommandFailed(f"topic {result['name']} is marked for deletion: {waits}")
        if result["error_code"] != ErrorCode.NONE:
            raise broker_error(f"topic {result['name']} was not deleted", result["error_code"], result["error_message"])
        results(arguments).done(f"Deleted topic {result['name']}.", topic=result["name"], action="deleted")


_DO = {"create": _create, "list": _list, "describe": describe, "alter": _alter, "delete": _delete}
