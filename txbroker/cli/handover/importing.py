"""`txbroker import`: takes log directories over from Apache Kafka with ZooKeeper."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import key_value
from txbroker.cli.handover.handover_directories import ZOOKEEPER_HELP, add_flags, log_dirs, metadata_file, read_config
from txbroker.cli.results import Column, results
from txbroker.cli.step_progress import Steps
from txbroker.console.failures import DONE, BadUsage, CommandFailed, warn
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, amount, id_to_text

if TYPE_CHECKING:
    from txbroker.cluster.zookeeper_migration.import_plan import ImportPlan
    from txbroker.cluster.zookeeper_migration.kafka_metadata import FoundLogs
    from txbroker.config.resolve import BrokerConfig
    from txbroker.log.disk import Disk

DESCRIPTION = """\
Import the metadata of a stopped (or killed) Apache Kafka broker with ZooKeeper (up to 3.9), so that txbroker can serve its log
directories; or make the metadata of txbroker's own directories again, if their metadata file is lost. The metadata is: the cluster id,
topics with their ids and configurations, the broker's configurations, and producer ids. It is written to one new file in the first log
directory. Other files do not change, and ZooKeeper does not.

Without --zookeeper, the metadata is derived from the log directories, which do not contain configurations: specify --topic-config.

  txbroker import --config server.properties --zookeeper 127.0.0.1:2181/kafka --dry-run
  txbroker import --config server.properties --zookeeper 127.0.0.1:2181/kafka
  txbroker import --log-dirs /srv/kafka-logs --topic-config state:cleanup.policy=compact --yes

Consequences that need your consent are printed as concerns: nothing is imported until you specify --yes. txbroker export hands the
directories back to Apache Kafka.
"""

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partitions", "PARTITIONS"),
    Column("here", "HERE"),
    Column("topic_id", "TOPIC-ID"),
    Column("configs", "CONFIGS"),
)
REPLACED = "replaced"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("import", help="take over log directories of Apache Kafka with ZooKeeper", description=DESCRIPTION)
    parser.add_argument("--zookeeper", metavar="HOST:PORT/CHROOT", help=ZOOKEEPER_HELP)
    config_help = "a topic configuration, which overrides ZooKeeper's; TOPIC * means all topics; can be specified several times"
    parser.add_argument("--topic-config", action="append", default=[], type=_topic_config, metavar="TOPIC:KEY=VALUE", help=config_help)
    cluster_help = "the cluster id, if the directories have none (Apache Kafka before 2.4); default: a new one"
    parser.add_argument("--cluster-id", metavar="ID", help=cluster_help)
    parser.add_argument("--force", action="store_true", help="replace the metadata of an earlier import; its file is renamed")
    add_flags(parser)
    parser.set_defaults(command=run)


def _topic_config(text: str) -> tuple[str, str, str]:
    topic, colon, rest = text.partition(":")
    if not colon or not topic:
        raise argparse.ArgumentTypeError(f"must be TOPIC:KEY=VALUE, not {text!r}")
    return (topic, *key_value(rest))


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and execute it. CommandFailed: it has refusals, or concerns without --yes."""
    from txbroker.cli.handover.config_compatibility import config_checks
    from txbroker.cli.handover.directory_inventory import locked, read_directories, read_identity
    from txbroker.cluster.zookeeper_migration.import_rules import plan_import
    from txbroker.cluster.zookeeper_migration.kafka_metadata import cluster_from_logs
    from txbroker.errors import StorageError
    from txbroker.log.cleaner import cleaning_history_file
    from txbroker.log.os_disk import OsDisk

    config = read_config(arguments)
    directories, configs = log_dirs(arguments, config), _by_topic(arguments.topic_config)
    _check(config, configs)
    disk, steps = OsDisk(), Steps()
    try:
        read_identity(disk, directories)  # before it creates lock files: the directories may be wrong
        # A dry run may read the directories of a running broker.
        with locked(disk, [] if arguments.dry_run else directories):
            existing = metadata_file(disk, directories)
            if existing is not None and not arguments.force:
                raise CommandFailed(
                    f"{existing} exists: these directories were imported before, and `txbroker run` serves them; if Apache Kafka has used "
                    "them since, or the file is empty or damaged, import them again with --force"
                )
            found = _identified(read_directories(disk, directories, steps.step("log directories")), arguments, config)
            if not found.logs:
                raise CommandFailed(f"no logs in {', '.join(directories)}: specify the log.dirs of the broker")
            if arguments.zookeeper is None:
                cluster = cluster_from_logs(found, configs, _internal_partitions(config))
            else:
                from txbroker.cli.handover import zookeeper, zookeeper_reader

                with zookeeper.session(arguments.zookeeper, config) as session:
                    broker_id = -1 if found.identity.broker_id is None else found.identity.broker_id
                    cluster = zookeeper_reader.read_cluster(session, broker_id, steps.step("ZooKeeper"))
            plan = plan_import(cluster, found, configs, config_checks(config))
            steps.finish()
            _show(arguments, plan, cluster.source, clean=found.clean)
            if plan.refusals:
                raise CommandFailed(f"nothing is imported: {'; '.join(plan.refusals)}")
            if arguments.dry_run:
                return DONE
            if plan.concerns and not arguments.yes:
                raise CommandFailed("nothing is imported: specify --yes to continue in spite of the printed concerns")
            for directory in directories:
                disk.remove(f"{directory}/{cleaning_history_file.FILE_NAME}")  # it is older than what Kafka has cleaned
            return _write(arguments, disk, directories[0], existing, plan)
    except StorageError as error:
        raise CommandFailed(f"{error.message}; nothing is imported") from error
    finally:
        steps.finish()


def _identified(found: FoundLogs, arguments: argparse.Namespace, config: BrokerConfig) -> FoundLogs:
    """With the ids of the command line where the directories have none; BadUsage when they have others."""
    from txbroker.log.meta_properties import Identity

    identity, configured = found.identity, config.int("broker.id")
    if configured >= 0 and identity.broker_id not in (None, configured):
        raise BadUsage(f"broker.id is {configured}, and the directories belong to broker {identity.broker_id}; correct broker.id")
    if arguments.cluster_id is not None and identity.cluster_id not in (None, arguments.cluster_id):
        raise BadUsage(f"--cluster-id is {arguments.cluster_id}, and the directories belong to cluster {identity.cluster_id}; omit it")
    broker_id = configured if identity.broker_id is None and configured >= 0 else identity.broker_id
    return replace(found, identity=Identity(broker_id, identity.cluster_id or arguments.cluster_id))


def _internal_partitions(config: BrokerConfig) -> dict[str, int]:
    return {
        OFFSETS_TOPIC: config.int("offsets.topic.num.partitions"),
        TRANSACTIONS_TOPIC: config.int("transaction.state.log.num.partitions"),
    }


def _by_topic(given: list[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for topic, key, value in given:
        configs.setdefault(topic, {})[key] = value
    return configs


def _check(config: BrokerConfig, configs: dict[str, dict[str, str]]) -> None:
    """BadUsage for an unknown key or wrong value: without it, retention might delete records that the operator wants to keep."""
    from txbroker.cluster.zookeeper_migration.kafka_metadata import EVERY_TOPIC
    from txbroker.config.topics import validate_topic_configs
    from txbroker.errors import BrokerError

    for topic, given in configs.items():
        try:
            validate_topic_configs(config, {**configs.get(EVERY_TOPIC, {}), **given})
        except BrokerError as error:
            raise BadUsage(f"--topic-config {topic}: {error}; nothing is imported") from None


def _show(arguments: argparse.Namespace, plan: ImportPlan, source: str, *, clean: bool) -> None:
    shown = results(arguments)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.epochs),
            "here": len(topic.here),
            "topic_id": id_to_text(topic.topic_id),
            "configs": [f"{key}={value}" for key, value in sorted(topic.configs.items())],
        }
        for topic in plan.topics
    ]
    if shown.as_json:
        broker = {"broker": _shown(plan.broker_configs), "all_brokers": _shown(plan.default_configs)}
        block = plan.producer_ids
        shown.json({
            "from": source, "cluster_id": plan.cluster_id, "broker_id": plan.broker_id, "clean": clean, "topics": rows, "configs": broker,
            "next_producer_id": 0 if block is None else block.end + 1,
            "notes": plan.notes, "concerns": plan.concerns, "refusals": plan.refusals,
        })  # fmt: skip
        return
    shutdown = "clean" if clean else "unclean (txbroker recovers the logs when it starts)"
    shown.line(f"Import of cluster {plan.cluster_id}, broker {plan.broker_id}, shutdown {shutdown}, metadata from {source}")
    shown.rows(COLUMNS, rows)
    for kind, texts in (("note", plan.notes), ("concern", plan.concerns)):
        for text in texts:
            shown.line(f"{kind}: {text}")


def _shown(configs: Mapping[str, str]) -> dict[str, str]:
    from txbroker.config.listener_keys import known_key
    from txbroker.config.origins import HIDDEN

    known = {name: known_key(name) for name in configs}
    return {name: HIDDEN if (key := known[name]) is None or key.sensitive else value for name, value in configs.items()}


def _write(arguments: argparse.Namespace, disk: Disk, directory: str, existing: str | None, plan: ImportPlan) -> int:
    from txbroker.cluster.tree.sqlite import FILE_NAME
    from txbroker.cluster.tree.sqlite_file import rename_file, write_tree

    path = existing or os.path.join(directory, FILE_NAME)
    if existing is not None:
        warn(f"the metadata file of the earlier import was renamed to {rename_file(path, disk, REPLACED)}")
    write_tree(path, plan.operations(), disk)
    count = sum(len(topic.epochs) for topic in plan.topics)
    imported = f"{amount(len(plan.topics), 'topic')} with {amount(count, 'partition')}"
    results(arguments).done(
        f"Imported {imported} into {path}: `txbroker run` serves these log.dirs now.",
        imported=path, topics=len(plan.topics), partitions=count,
    )  # fmt: skip
    return DONE
