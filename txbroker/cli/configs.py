"""`txbroker configs`: show and change configurations of topics and brokers, and quotas of clients (Kafka's kafka-configs)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from txbroker.cli import clients, quota_configs
from txbroker.cli.arguments import add_client
from txbroker.cli.results import Column, Results, Row, cell, results
from txbroker.console.failures import DONE, BadUsage, CommandFailed, broker_error, no_topic, warn
from txbroker.errors import ErrorCode

DESCRIPTION = """\
Describe and alter the dynamic configurations of topics and brokers, and the quotas of users and client ids.

  txbroker configs --bootstrap-server 127.0.0.1:9092 --describe --entity-type topics --entity-name hello --all
  txbroker configs --bootstrap-server 127.0.0.1:9092 --alter --topic hello --add-config retention.ms=3600000,cleanup.policy=[compact,delete]
  txbroker configs --bootstrap-server 127.0.0.1:9092 --alter --entity-type brokers --entity-default --delete-config log.retention.ms
  txbroker configs --bootstrap-server 127.0.0.1:9092 --alter --client reports --add-config consumer_byte_rate=1000000
  txbroker configs --log-dirs /srv/txbroker --alter --broker 1 --delete-config listener.name.ssl.ssl.key.password

--describe without a name describes all topics, or all brokers and their defaults. A value that contains commas is enclosed in brackets.
--log-dirs deletes configurations of a broker without ZooKeeper that is stopped, as it does not start with them.
"""


class Kind(NamedTuple):
    """A type of entity: its number in DescribeConfigs, its name in Kafka's messages, and the sources of its dynamic configurations."""

    number: int
    word: str
    source: int
    default_source: int | None = None


# Numbers of ConfigResource.Type and DescribeConfigsResponse.ConfigSource.
KINDS = {
    "topics": Kind(2, "topic", 1),
    "brokers": Kind(4, "broker", 2, 3),
    "broker-loggers": Kind(8, "broker-logger", 6),
    "client-metrics": Kind(16, "client-metric", 7),
    "groups": Kind(32, "group", 8),
}
SERVED = ("topics", "brokers")
AT_BROKERS = ("brokers", "broker-loggers")
SOURCES = (
    "UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG", "DYNAMIC_CLIENT_METRICS_CONFIG", "DYNAMIC_GROUP_CONFIG",
)  # fmt: skip
TYPES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
DEFAULT = ""  # the name of the entity for the defaults of all brokers
SET, DELETE = 0, 1
COLUMNS = (Column("name", "CONFIG"), Column("value", "VALUE"), Column("source", "SOURCE"), Column("others", "SYNONYMS"))


class Entity(NamedTuple):
    """A topic, a broker, or the defaults of all brokers."""

    type: str
    name: str

    @property
    def kind(self) -> Kind:
        """The kind of its type."""
        return KINDS[self.type]

    @property
    def node_id(self) -> int | None:
        """The broker to send requests to; None for any."""
        return int(self.name) if self.type in AT_BROKERS and self.name != DEFAULT else None

    def __str__(self) -> str:
        return f"{self.kind.word} {self.name}" if self.name != DEFAULT else f"default {self.kind.word}"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("configs", help="describe and alter configurations of topics and brokers", description=DESCRIPTION)
    add_client(parser, required=False)
    log_dirs_help = "with --alter and --delete-config, for a broker: the log.dirs of a stopped broker, instead of --bootstrap-server"
    parser.add_argument("--log-dirs", metavar="DIR,...", help=log_dirs_help)
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", dest="action", action="store_const", const="describe", help="describe the dynamic configurations")
    actions.add_argument("--alter", dest="action", action="store_const", const="alter", help="alter dynamic configurations")
    type_help = "topics, brokers, users or clients (both for a client id of a user), or ips; or others, if the broker has them"
    types = (*KINDS, *quota_configs.TYPES)
    parser.add_argument("--entity-type", action="append", choices=types, metavar="TYPE", help=type_help)
    name_help = "the name of a topic, a user or a client id, the id of a broker, or an address"
    parser.add_argument("--entity-name", dest="entity_names", action="append", metavar="NAME", help=name_help)
    default_help = "the defaults of all brokers, users, client ids or addresses"
    parser.add_argument("--entity-default", dest="entity_names", action="append_const", const=None, help=default_help)
    parser.add_argument("--topic", metavar="NAME", help="short for --entity-type topics --entity-name NAME")
    parser.add_argument("--broker", metavar="ID", help="short for --entity-type brokers --entity-name ID")
    parser.add_argument("--user", metavar="NAME", help="short for --entity-type users --entity-name NAME")
    parser.add_argument("--client", metavar="ID", help="short for --entity-type clients --entity-name ID")
    parser.add_argument("--user-defaults", action="store_true", help="short for --entity-type users --entity-default")
    parser.add_argument("--client-defaults", action="store_true", help="short for --entity-type clients --entity-default")
    parser.add_argument("--ip", metavar="ADDRESS", help="short for --entity-type ips --entity-name ADDRESS")
    parser.add_argument("--ip-defaults", action="store_true", help="short for --entity-type ips --entity-default")
    parser.add_argument("--broker-defaults", action="store_true", help="short for --entity-type brokers --entity-default")
    parser.add_argument("--all", action="store_true", help="with --describe: all configurations, also those that are not set dynamically")
    add_help = "with --alter: the configurations to set; a value with commas: key=[a,b]"
    parser.add_argument("--add-config", type=pairs, metavar="KEY=VALUE,...", help=add_help)
    parser.add_argument("--add-config-file", metavar="FILE", help="with --alter: a properties file with configurations to set")
    parser.add_argument("--delete-config", type=keys, metavar="KEY,KEY,...", help="with --alter: the configurations to delete")
    parser.set_defaults(command=run)


def pairs(text: str) -> dict[str, str]:
    """The type of --add-config: comma-separated KEY=VALUE, in which commas in brackets belong to a value."""
    parts: list[str] = [""]
    depth = 0
    for each in text:
        depth = 1 if each == "[" else 0 if each == "]" else depth
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            allowed = "comma-separated KEY=VALUE, with brackets around a value that has commas"
            raise argparse.ArgumentTypeError(f"must be {allowed}, not {text!r}")
        found[key.strip()] = value.strip().replace("[", "").replace("]", "")
    return found


def keys(text: str) -> list[str]:
    """The type of --delete-config."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts or any("=" in part for part in parts):
        raise argparse.ArgumentTypeError(f"must be comma-separated keys, not {text!r}")
    return parts


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    if (arguments.bootstrap_server is None) == (arguments.log_dirs is None):
        raise BadUsage("specify one of --bootstrap-server and --log-dirs")
    if arguments.log_dirs is not None:
        return _run_stopped(arguments)
    limited = quota_configs.parts(arguments)
    if limited:
        return _run_quotas(arguments, limited)
    kind, name = chosen(arguments)
    if arguments.action == "alter":
        changes = _changes(arguments)
        with clients.administering(arguments) as admin:
            entity = Entity(kind, name or DEFAULT)
            _check_deleted(admin, entity, changes)
            alter(admin, entity, changes)
        _warn_of_topic_keys(entity, changes)
        _show_altered(results(arguments), entity, changes)
        return DONE
    with clients.administering(arguments) as admin:
        for entity in [Entity(kind, name)] if name is not None else _all(admin, kind):
            _show(results(arguments), entity, _describe(admin, entity), arguments.all)
    return DONE


def _run_stopped(arguments: argparse.Namespace) -> int:
    from txbroker.cli import stored_broker_configs
    from txbroker.cluster import node_paths

    if quota_configs.parts(arguments) or arguments.action != "alter" or arguments.add_config or arguments.add_config_file:
        raise BadUsage("--log-dirs is only valid with --alter and --delete-config, for a broker")
    kind, name = chosen(arguments)
    if kind != "brokers":
        raise BadUsage("--log-dirs is only valid with --alter and --delete-config, for a broker")
    entity = node_paths.ALL_BROKERS if name == DEFAULT else node_paths.broker_entity(int(name or ""))
    stored_broker_configs.delete(arguments.log_dirs, entity, arguments.delete_config)
    _show_altered(results(arguments), Entity(kind, name or DEFAULT), dict.fromkeys(arguments.delete_config))
    return DONE


def _run_quotas(arguments: argparse.Namespace, limited: list[quota_configs.Part]) -> int:
    _check_action(arguments)
    changes = quota_configs.numbers(_changes(arguments)) if arguments.action == "alter" else {}
    with clients.administering(arguments) as admin:
        if changes:
            quota_configs.alter(admin, limited, changes, results(arguments))
        else:
            quota_configs.describe(admin, limited, results(arguments))
    return DONE


def chosen(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """The type and the name of the entity (DEFAULT for the defaults, None for all entities); BadUsage."""
    short = [("topics", arguments.topic), ("brokers", arguments.broker), ("brokers", DEFAULT if arguments.broker_defaults else None)]
    given = [(kind, name) for kind, name in short if name is not None]
    types, names = arguments.entity_type or [], arguments.entity_names or []
    long = bool(types or names)
    if len(given) + long != 1 or (long and (len(types) != 1 or len(names) > 1)):
        raise BadUsage("specify --entity-type and --entity-name, or one of --topic, --broker and --broker-defaults")
    kind, name = given[0] if given else (types[0], names[0] if names else None)
    is_default = arguments.broker_defaults or names == [None]
    if names == [None]:
        if kind != "brokers":
            raise BadUsage("--entity-default is only valid with --entity-type brokers, users and clients")
        name = DEFAULT
    if name == "" and not is_default:
        raise BadUsage("--entity-name must not be empty")
    _check(arguments, kind, name)
    return kind, name


def _check(arguments: argparse.Namespace, kind: str, name: str | None) -> None:
    if kind in AT_BROKERS and name and not (name.isascii() and name.isdecimal()):
        raise BadUsage(f"the name of a broker is its id, a number, not {name!r}")
    if arguments.action == "alter" and name is None:
        raise BadUsage("--alter needs --entity-name, or --entity-default for all brokers")
    _check_action(arguments)


def _check_action(arguments: argparse.Namespace) -> None:
    altering = (arguments.add_config, arguments.add_config_file, arguments.delete_config)
    if arguments.action == "describe" and any(altering):
        raise BadUsage("--add-config, --add-config-file and --delete-config are only valid with --alter, not with --describe")
    if arguments.action == "alter":
        if not any(altering) or (arguments.add_config and arguments.add_config_file):
            raise BadUsage("--alter needs --add-config or --add-config-file, or --delete-config")
        if arguments.all:
            raise BadUsage("--all is only valid with --describe, not with --alter")


def _changes(arguments: argparse.Namespace) -> dict[str, str | None]:
    """The new values; None for a configuration to be deleted."""
    added = arguments.add_config or clients.read_properties(arguments.add_config_file)
    deleted = arguments.delete_config or []
    both = sorted(set(added) & set(deleted))
    if both:
        raise BadUsage(f"{both[0]} is both added and deleted; remove one of the two")
    if not added and not deleted:
        raise CommandFailed(f"{arguments.add_config_file} has no configurations; add KEY=VALUE lines to it")
    return {**added, **dict.fromkeys(deleted)}


def _check_deleted(admin: Any, entity: Entity, changes: Mapping[str, str | None]) -> None:
    """CommandFailed if a configuration is to be deleted that is not set, as in Kafka's tool: mostly it is misspelt."""
    deleted = [key for key, value in changes.items() if value is None]
    if deleted:
        names = {row["name"] for row in _describe(admin, entity) if row["source"] == _dynamic_source(entity)}
        invalid = [key for key in deleted if key not in names]
        if invalid:
            known = f"set are {', '.join(sorted(names))}" if names else "none is set"
            raise CommandFailed(f"Invalid config(s): {','.join(invalid)}: not set for {entity}; {known}")


def _warn_of_topic_keys(entity: Entity, changes: Mapping[str, str | None]) -> None:
    """A broker stores keys that it does not know, as in Kafka, where plugins have keys."""
    from txbroker.config.static import topic_key

    if entity.type == "brokers":
        for problem in filter(None, (topic_key(name) for name, value in changes.items() if value is not None)):
            warn(f"txbroker configs: warning: {problem}")


def _dynamic_source(entity: Entity) -> str:
    source = entity.kind.source if entity.name != DEFAULT else entity.kind.default_source
    return SOURCES[source or 0]


def _all(admin: Any, kind: str) -> list[Entity]:
    if kind == "topics":
        return [Entity(kind, name) for name in sorted(topic["name"] for topic in admin.describe_topics())]
    if kind in AT_BROKERS:
        brokers = [Entity(kind, str(broker["broker_id"])) for broker in admin.describe_cluster()["brokers"]]
        return [*brokers, Entity(kind, DEFAULT)] if kind == "brokers" else brokers
    raise BadUsage(f"--entity-type {kind} needs --entity-name")


def _failure(entity: Entity, what: str, code: int, message: str | None) -> CommandFailed:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return no_topic(entity.name)
    if entity.type not in SERVED and code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION):
        return CommandFailed(f"this broker has no configurations of {entity.type}; use --entity-type topics or brokers")
    return broker_error(f"{entity} {what}", code, message)


def _ask(admin: Any, entity: Entity, request: Any) -> Any:
    from kafka.errors import IncompatibleBrokerVersion, NodeNotReadyError, UnknownBrokerIdError

    try:
        return clients.send(admin, request, entity.node_id)
    except (UnknownBrokerIdError, NodeNotReadyError):
        raise CommandFailed(f"there is no broker {entity.name}; see `txbroker broker-api-versions`") from None
    except IncompatibleBrokerVersion:
        raise CommandFailed("the broker does not support this request; use a newer broker") from None


def _describe(admin: Any, entity: Entity) -> list[Row]:
    from kafka.protocol.admin import DescribeConfigsRequest

    wanted = [(entity.kind.number, entity.name, None)]
    (found,) = _ask(admin, entity, DescribeConfigsRequest(resources=wanted, include_synonyms=True, min_version=1)).results
    if found.error_code != ErrorCode.NONE:
        raise _failure(entity, "cannot be described", found.error_code, found.error_message)
    return [_entry(config) for config in sorted(found.configs, key=lambda config: str(config.name))]


def _entry(config: Any) -> Row:
    return {
        "name": config.name,
        "value": config.value,
        "source": _named(SOURCES, config.config_source),
        "sensitive": config.is_sensitive,
        "read_only": config.read_only,
        "type": _named(TYPES, getattr(config, "config_type", None) or 0),
        "synonyms": [{"name": each.name, "value": each.value, "source": _named(SOURCES, each.source)} for each in config.synonyms],
    }


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]


def _show(shown: Results, entity: Entity, entries: Iterable[Row], everything: bool) -> None:
    rows = [row for row in entries if everything or row["source"] == _dynamic_source(entity)]
    if shown.as_json:
        shown.json({"entity_type": entity.type, "entity_name": entity.name or None, "configs": rows})
        return
    which = "All" if everything else "Dynamic"
    of_all = f"{'All' if everything else 'Default'} configs for brokers in the cluster are:"
    shown.line(of_all if entity.name == DEFAULT else f"{which} configs for {entity} are:")
    if shown.width is None:
        for row in rows:
            shown.line(plain(row))
    elif rows:
        shown.rows(COLUMNS, [{**row, "others": [_synonym(each) for each in row["synonyms"][1:]]} for row in rows])


def _synonym(synonym: Row) -> str:
    return f"{synonym['source']}:{synonym['name']}={_value(synonym)}"


def _value(row: Row) -> str:
    """As in Kafka's tool, a hidden value is null."""
    return "null" if row["value"] is None else str(row["value"])


def plain(row: Row) -> str:
    """A configuration as printed by Kafka's tool."""
    synonyms = ", ".join(map(_synonym, row["synonyms"]))
    return f"  {row['name']}={_value(row)} sensitive={cell(row['sensitive'])} synonyms={{{synonyms}}}"


def alter(admin: Any, entity: Entity, changes: Mapping[str, str | None]) -> None:
    """Set configurations, and delete those that are None; CommandFailed."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    entries = [(key, DELETE if value is None else SET, value) for key, value in changes.items()]
    request = IncrementalAlterConfigsRequest(resources=[(entity.kind.number, entity.name, entries)], validate_only=False)
    (answer,) = _ask(admin, entity, request).responses
    if answer.error_code != ErrorCode.NONE:
        raise _failure(entity, "was not altered", answer.error_code, answer.error_message)


def _show_altered(shown: Results, entity: Entity, changes: Mapping[str, str | None]) -> None:
    of_all = "Completed updating default config for brokers in the cluster."
    sentence = of_all if entity.name == DEFAULT else f"Completed updating config for {entity}."
    added = {key: value for key, value in changes.items() if value is not None}
    deleted = [key for key, value in changes.items() if value is None]
    shown.done(sentence, entity_type=entity.type, entity_name=entity.name or None, added=added, deleted=deleted)
