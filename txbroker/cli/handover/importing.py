"""`txbroker import`: log directories that Apache Kafka with ZooKeeper has left become those of a txbroker."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import key_value
from txbroker.cli.failures import DONE, BadUsage, CommandFailed, warn
from txbroker.cli.handover.handover_directories import ZOOKEEPER_HELP, add_places, log_dirs, metadata_file, read_config
from txbroker.cli.handover.step_progress import Steps
from txbroker.cli.results import Column, results

if TYPE_CHECKING:
    from txbroker.cluster.zookeeper_migration.import_plan import ImportPlan
    from txbroker.config.resolve import BrokerConfig
    from txbroker.log.disk import Disk

DESCRIPTION = """\
Make the metadata with which txbroker serves the log directories of a broker of Apache Kafka (with ZooKeeper, up to 3.9) that
was stopped or killed: topics with their ids and configurations, those of the broker, the cluster's id, producer ids. Nothing else
in the directories is changed, and nothing in ZooKeeper. Without --zookeeper the directories alone tell what they can.

  txbroker import --config server.properties --zookeeper 127.0.0.1:2181/kafka --dry-run
  txbroker import --config server.properties --zookeeper 127.0.0.1:2181/kafka
  txbroker import --log-dirs /srv/kafka-logs --topic-config state:cleanup.policy=compact --yes

What speaks against it is printed as a concern, and --yes agrees to it. Back to Apache Kafka: txbroker export.
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
    config_help = "a topic's configuration (TOPIC may be * for all); it wins over ZooKeeper's; may be given several times"
    parser.add_argument("--topic-config", action="append", default=[], type=_topic_config, metavar="TOPIC:KEY=VALUE", help=config_help)
    parser.add_argument("--force", action="store_true", help="replace metadata that is there; the old file is kept beside it")
    add_places(parser)
    parser.set_defaults(command=run)


def _topic_config(text: str) -> tuple[str, str, str]:
    topic, colon, rest = text.partition(":")
    if not colon or not topic:
        raise argparse.ArgumentTypeError(f"must be TOPIC:KEY=VALUE, not {text!r}")
    return (topic, *key_value(rest))


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, and carry it out; CommandFailed when something speaks against it that nobody agreed to."""
    from txbroker.cli.handover.config_compatibility import judges
    from txbroker.cli.handover.directory_inventory import held, identity_of, look
    from txbroker.cluster.zookeeper_migration.import_rules import plan_import
    from txbroker.cluster.zookeeper_migration.kafka_metadata import cluster_from_logs
    from txbroker.errors import StorageError
    from txbroker.log.cleaner import cleaning_history_file
    from txbroker.log.disk import OsDisk

    config = read_config(arguments)
    directories, configs = log_dirs(arguments, config), _by_topic(arguments.topic_config)
    _check(config, configs)
    disk, steps = OsDisk(), Steps()
    try:
        identity_of(disk, directories)  # before a lock file is made in what is no log directory
        # A plan can be made while the broker still runs.
        with held(disk, [] if arguments.dry_run else directories):
            there = metadata_file(disk, directories)
            if there is not None and not arguments.force:
                raise CommandFailed(
                    f"{there} is there: these directories are txbroker's already, and `txbroker run` serves them; --force replaces the "
                    "metadata by what is imported, after Apache Kafka has run on them"
                )
            found = look(disk, directories, steps.step("log directories"))
            if not found.logs:
                raise CommandFailed(f"there are no logs in {', '.join(directories)}: name the log.dirs of the broker")
            if arguments.zookeeper is None:
                cluster = cluster_from_logs(found, configs)
            else:
                from txbroker.cli.handover import zookeeper, zookeeper_reader

                with zookeeper.session(arguments.zookeeper) as session:
                    broker_id = -1 if found.identity.broker_id is None else found.identity.broker_id
                    cluster = zookeeper_reader.read_cluster(session, broker_id, steps.step("ZooKeeper"))
            plan = plan_import(cluster, found, configs, judges(config))
            steps.finish()
            _show(arguments, plan, cluster.place, clean=found.clean)
            if plan.refusals:
                raise CommandFailed(f"nothing is imported: {'; '.join(plan.refusals)}")
            if arguments.dry_run:
                return DONE
            if plan.concerns and not arguments.yes:
                raise CommandFailed("nothing is imported until somebody has agreed to what is printed as a concern: --yes")
            for directory in directories:
                disk.remove(f"{directory}/{cleaning_history_file.FILE_NAME}")  # what Kafka has cleaned since is not in it
            return _write(arguments, disk, directories[0], there, plan)
    except StorageError as error:
        raise CommandFailed(f"{error.message}; nothing is imported") from error
    finally:
        steps.finish()


def _by_topic(given: list[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for topic, key, value in given:
        configs.setdefault(topic, {})[key] = value
    return configs


def _check(config: BrokerConfig, configs: dict[str, dict[str, str]]) -> None:
    """BadUsage for a wrong key or value: with the default in its place, retention could take what was to be kept."""
    from txbroker.cluster.zookeeper_migration.kafka_metadata import EVERY_TOPIC
    from txbroker.config.topics import validate_topic_configs
    from txbroker.errors import BrokerError

    for topic, given in configs.items():
        try:
            validate_topic_configs(config, {**configs.get(EVERY_TOPIC, {}), **given})
        except BrokerError as error:
            raise BadUsage(f"--topic-config {topic}: {error}; nothing is imported") from None


def _show(arguments: argparse.Namespace, plan: ImportPlan, place: str, *, clean: bool) -> None:
    from txbroker.names import id_to_text

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
        broker = {"broker": dict(plan.broker_configs), "all_brokers": dict(plan.default_configs)}
        block = plan.producer_ids
        shown.json({
            "from": place, "cluster_id": plan.cluster_id, "broker_id": plan.broker_id, "clean": clean, "topics": rows, "configs": broker,
            "next_producer_id": 0 if block is None else block.end + 1,
            "notes": plan.notes, "concerns": plan.concerns, "refusals": plan.refusals,
        })  # fmt: skip
        return
    how = "was stopped cleanly" if clean else "was not stopped cleanly: txbroker recovers its logs when it starts"
    shown.line(f"Cluster {plan.cluster_id}, broker {plan.broker_id}, which {how}; metadata from {place}")
    shown.rows(COLUMNS, rows)
    for kind, texts in (("note", plan.notes), ("concern", plan.concerns)):
        for text in texts:
            shown.line(f"{kind}: {text}")


def _write(arguments: argparse.Namespace, disk: Disk, directory: str, there: str | None, plan: ImportPlan) -> int:
    from txbroker.cluster.tree.sqlite import FILE_NAME
    from txbroker.cluster.tree.sqlite_file import set_aside, write_tree

    path = there or os.path.join(directory, FILE_NAME)
    if there is not None:
        warn(f"the metadata that was there is now {set_aside(path, disk, REPLACED)}")
    write_tree(path, plan.operations(), disk)
    count = sum(len(topic.epochs) for topic in plan.topics)
    results(arguments).done(
        f"{len(plan.topics)} topics with {count} partitions are imported into {path}: `txbroker run` with these log.dirs serves them now",
        imported=path, topics=len(plan.topics), partitions=count,
    )  # fmt: skip
    return DONE
