"""`txbroker cluster cluster-id`, `list-endpoints` and `unregister`: what Kafka's kafka-cluster does."""

from __future__ import annotations

import argparse
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number
from txbroker.cli.results import Column, results
from txbroker.console.failures import DONE, CommandFailed

COLUMNS = (
    Column("id", "ID", 10), Column("host", "HOST"), Column("port", "PORT", 10), Column("rack", "RACK"), Column("state", "STATE", 10),
    Column("endpoint_type", "ENDPOINT_TYPE"),
)  # fmt: skip


def add_parsers(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `txbroker cluster`."""
    actions = parser.add_subparsers(title="commands for a running cluster", metavar="COMMAND", dest="action")
    for name, summary, command in (
        ("cluster-id", "print the id of a cluster", _cluster_id),
        ("list-endpoints", "list the brokers of a cluster", _list_endpoints),
        ("unregister", "remove the registration of a broker that is gone; for clusters with KRaft only", _unregister),
    ):
        action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        add_client(action, "--config")
        action.set_defaults(command=command)
        if command is _list_endpoints:
            action.add_argument("--include-fenced-brokers", action="store_true", help="accepted; without KRaft no broker is fenced")
        elif command is _unregister:
            action.add_argument("--id", type=number(0), required=True, metavar="ID", help="the id of the broker")


def _cluster_id(arguments: argparse.Namespace) -> int:
    with clients.administering(arguments) as admin:
        cluster_id = admin.describe_cluster()["cluster_id"]
    results(arguments).done(f"Cluster ID: {cluster_id}", cluster_id=cluster_id)
    return DONE


def _list_endpoints(arguments: argparse.Namespace) -> int:
    with clients.administering(arguments) as admin:
        brokers: list[dict[str, Any]] = admin.describe_cluster()["brokers"]
    rows = [
        {"id": broker["broker_id"], "host": broker["host"], "port": broker["port"], "rack": broker.get("rack"), "state": "unfenced",
         "endpoint_type": "broker"}
        for broker in sorted(brokers, key=lambda broker: int(broker["broker_id"]))
    ]  # fmt: skip
    results(arguments).rows(COLUMNS, rows)
    return DONE


def _unregister(arguments: argparse.Namespace) -> int:
    raise CommandFailed(
        f"broker {arguments.id} cannot be unregistered: in a cluster on ZooKeeper a registration ends with the broker's session; "
        "move its replicas to other brokers with `txbroker reassign-partitions`"
    )
