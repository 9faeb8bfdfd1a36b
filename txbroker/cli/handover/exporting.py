"""`txbroker export`: the log directories of a txbroker become those of a broker of Apache Kafka with ZooKeeper."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from txbroker.cli.failures import DONE, CommandFailed, warn
from txbroker.cli.handover.handover_directories import ZOOKEEPER_HELP, add_places, log_dirs, metadata_file, read_config
from txbroker.cli.handover.step_progress import Steps
from txbroker.cli.results import Column, results

if TYPE_CHECKING:
    from txbroker.cluster.zookeeper_migration.export_rules import ExportPlan

DESCRIPTION = """\
Write the metadata of a txbroker that was stopped, or killed, into the ZooKeeper of a Kafka cluster, or into an empty one, so that Apache
Kafka (up to 3.9) serves its log directories: topics with their ids and configurations, those of the broker, producer ids.
The metadata file is then put aside, so that txbroker does not start on directories that Kafka writes to: txbroker import is the way back.

  txbroker export --config server.properties --zookeeper 127.0.0.1:2181/kafka --dry-run
  txbroker export --config server.properties --zookeeper 127.0.0.1:2181/kafka

What speaks against it is printed as a concern, and --yes agrees to it. An export that was interrupted can be begun again.
"""

COLUMNS = (Column("topic", "TOPIC"), Column("partitions", "PARTITIONS"), Column("what", "IN-ZOOKEEPER"))
EXPORTED = "exported"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("export", help="hand log directories over to Apache Kafka with ZooKeeper", description=DESCRIPTION)
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT/CHROOT", help=ZOOKEEPER_HELP)
    add_places(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, and carry it out; CommandFailed when something speaks against it that nobody agreed to."""
    from txbroker.cli.handover import zookeeper, zookeeper_reader
    from txbroker.cli.handover.directory_inventory import held, identity_of, look
    from txbroker.cluster.node_data import MalformedNode
    from txbroker.cluster.tree.sqlite_file import read_tree, set_aside
    from txbroker.cluster.zookeeper_migration.export_rules import plan_export
    from txbroker.errors import StartError, StorageError
    from txbroker.log.disk import OsDisk

    config = read_config(arguments)
    directories = log_dirs(arguments, config)
    disk, steps = OsDisk(), Steps()
    try:
        identity = identity_of(disk, directories)
        with held(disk, directories), zookeeper.session(arguments.zookeeper) as session:
            path = metadata_file(disk, directories)
            if path is None:
                raise CommandFailed(f"no txbroker has metadata in {', '.join(directories)}: name all of its log.dirs")
            found = look(disk, directories, steps.step("log directories"))
            broker_id = -1 if identity.broker_id is None else identity.broker_id
            there = zookeeper_reader.read_cluster(session, broker_id, steps.step("ZooKeeper"), may_be_empty=True)
            plan = plan_export(read_tree(path), found, there)
            steps.finish()
            _show(arguments, plan)
            if plan.refusals:
                raise CommandFailed(f"nothing is exported: {'; '.join(plan.refusals)}")
            if arguments.dry_run:
                return DONE
            if plan.concerns and not arguments.yes:
                raise CommandFailed("nothing is exported until somebody has agreed to what is printed as a concern: --yes")
            session.make_root()
            for gone in plan.gone:
                session.delete(gone)
            session.write(plan.nodes, steps.step("ZooKeeper"))
            warn(f"txbroker's metadata is now {set_aside(path, disk, EXPORTED)}")
    except (StartError, MalformedNode) as error:
        raise CommandFailed(f"{error}; nothing is exported") from error
    except StorageError as error:
        raise CommandFailed(f"{error.message}; run it again once that is mended") from error
    finally:
        steps.finish()
    results(arguments).done(
        f"{len(plan.topics)} topics are exported to {arguments.zookeeper}: Apache Kafka serves these log.dirs now",
        exported=arguments.zookeeper, topics=len(plan.topics),
    )  # fmt: skip
    return DONE


def _show(arguments: argparse.Namespace, plan: ExportPlan) -> None:
    shown = results(arguments)
    rows = [{"topic": name, "partitions": count, "what": what} for name, (count, what) in sorted(plan.topics.items())]
    if shown.as_json:
        shown.json({
            "to": arguments.zookeeper, "cluster_id": plan.cluster_id, "broker_id": plan.broker_id, "topics": rows,
            "notes": plan.notes, "concerns": plan.concerns, "refusals": plan.refusals,
        })  # fmt: skip
        return
    shown.line(f"Cluster {plan.cluster_id}, broker {plan.broker_id}, to the ZooKeeper at {arguments.zookeeper}")
    shown.rows(COLUMNS, rows)
    for kind, texts in (("note", plan.notes), ("concern", plan.concerns)):
        for text in texts:
            shown.line(f"{kind}: {text}")
