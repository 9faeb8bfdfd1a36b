"""`txbroker export`: hands log directories over from txbroker to Apache Kafka with ZooKeeper."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from txbroker.cli.handover.handover_directories import ZOOKEEPER_HELP, add_flags, log_dirs, metadata_file, read_config
from txbroker.cli.results import Column, results
from txbroker.cli.step_progress import Steps
from txbroker.console.failures import DONE, CommandFailed, warn
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.cluster.zookeeper_migration.export_rules import ExportPlan

DESCRIPTION = """\
Export the metadata of a stopped (or killed) txbroker to ZooKeeper, so that Apache Kafka (up to 3.9) can serve its log directories. The
metadata is: topics with their ids and configurations, the broker's configurations, and producer ids. The ZooKeeper is that of a Kafka
cluster, or an empty one.

The export renames txbroker's metadata file, so that txbroker does not start while Kafka uses the directories. txbroker import takes the
directories over again.

  txbroker export --config server.properties --zookeeper 127.0.0.1:2181/kafka --dry-run
  txbroker export --config server.properties --zookeeper 127.0.0.1:2181/kafka

Consequences that need your consent are printed as concerns: nothing is exported until you specify --yes. After an interruption, run
the export again.
"""

COLUMNS = (Column("topic", "TOPIC"), Column("partitions", "PARTITIONS"), Column("what", "IN-ZOOKEEPER"))
EXPORTED = "exported"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("export", help="hand log directories over to Apache Kafka with ZooKeeper", description=DESCRIPTION)
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT/CHROOT", help=ZOOKEEPER_HELP)
    add_flags(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and execute it. CommandFailed: it has refusals, or concerns without --yes."""
    from txbroker.cli.handover import zookeeper, zookeeper_reader
    from txbroker.cli.handover.directory_inventory import locked, read_directories, read_identity
    from txbroker.cluster.node_data import MalformedNode
    from txbroker.cluster.tree.sqlite_file import read_tree, rename_file
    from txbroker.cluster.zookeeper_migration.export_rules import plan_export
    from txbroker.errors import StartError, StorageError
    from txbroker.log.os_disk import OsDisk

    config = read_config(arguments)
    directories = log_dirs(arguments, config)
    disk, steps = OsDisk(), Steps()
    try:
        identity = read_identity(disk, directories)
        with locked(disk, directories), zookeeper.session(arguments.zookeeper, config) as session:
            path = metadata_file(disk, directories)
            if path is None:
                raise CommandFailed(f"no metadata of a txbroker in {', '.join(directories)}: specify all of its log.dirs")
            found = read_directories(disk, directories, steps.step("log directories"))
            broker_id = -1 if identity.broker_id is None else identity.broker_id
            target = zookeeper_reader.read_cluster(session, broker_id, steps.step("ZooKeeper"), may_be_empty=True)
            plan = plan_export(read_tree(path), found, target)
            steps.finish()
            _show(arguments, plan)
            if plan.refusals:
                raise CommandFailed(f"nothing is exported: {'; '.join(plan.refusals)}")
            if arguments.dry_run:
                return DONE
            if plan.concerns and not arguments.yes:
                raise CommandFailed("nothing is exported: specify --yes to continue in spite of the printed concerns")
            session.make_root()
            for obsolete in plan.obsolete:
                session.delete(obsolete)
            session.write(plan.nodes, steps.step("ZooKeeper"))
            warn(f"txbroker's metadata file was renamed to {rename_file(path, disk, EXPORTED)}")
    except (StartError, MalformedNode) as error:
        raise CommandFailed(f"{error}; nothing is exported") from error
    except StorageError as error:
        raise CommandFailed(f"{error.message}; fix this and run the export again") from error
    finally:
        steps.finish()
    results(arguments).done(
        f"Exported {amount(len(plan.topics), 'topic')} to {arguments.zookeeper}: start Apache Kafka with these log.dirs.",
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
    shown.line(f"Export of cluster {plan.cluster_id}, broker {plan.broker_id}, to the ZooKeeper at {arguments.zookeeper}")
    shown.rows(COLUMNS, rows)
    for kind, texts in (("note", plan.notes), ("concern", plan.concerns)):
        for text in texts:
            shown.line(f"{kind}: {text}")
