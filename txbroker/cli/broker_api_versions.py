"""`txbroker broker-api-versions`: the APIs and versions that brokers support (Kafka's kafka-broker-api-versions)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client
from txbroker.cli.results import Column, Results, Row, results
from txbroker.console.failures import DONE, FAILED, warn

DESCRIPTION = """\
Print the APIs that each broker supports, with their versions, and the version that the client library of this command would use.

  txbroker broker-api-versions --bootstrap-server 127.0.0.1:9092
"""

COLUMNS = (
    Column("api_key", "KEY"), Column("name", "REQUEST"), Column("min_version", "FROM"), Column("max_version", "TO"),
    Column("usable_version", "USABLE"),
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    help_text = "print the APIs and versions that brokers support"
    parser = subparsers.add_parser("broker-api-versions", help=help_text, description=DESCRIPTION)
    add_client(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the versions of each broker; 1 if one of them did not answer."""
    status = DONE
    with clients.administering(arguments) as admin:
        for broker in sorted(admin.describe_cluster()["brokers"], key=lambda broker: int(broker["broker_id"])):
            row = _describe(admin, broker)
            _show(results(arguments), row)
            if row["error"] is not None:
                warn(f"broker {row['broker']} did not answer; check that it runs, and its advertised.listeners")
                status = FAILED
    return status


def _describe(admin: Any, broker: Mapping[str, Any]) -> Row:
    from kafka.errors import KafkaError

    where = {key: broker[key] for key in ("host", "port", "rack")}
    place = {"broker": broker["broker_id"], **where, "fenced": broker.get("is_fenced", False)}
    try:
        ranges = admin.get_broker_version_data(broker["broker_id"]).api_versions
    except KafkaError as error:
        return {**place, "error": clients.plain(error), "api_versions": [], "unsupported": []}
    names, newest = _known()
    versions = [_versions(key, names.get(key, "UNKNOWN"), low, high, newest.get(key)) for key, (low, high) in sorted(ranges.items())]
    missing = [{"api_key": key, "name": names[key]} for key in sorted(newest) if key not in ranges]
    return {**place, "error": None, "api_versions": versions, "unsupported": missing}


def _known() -> tuple[dict[int, str], dict[int, int]]:
    """By API key: the names in the client library, and the newest version of each request that it supports."""
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.producer  # noqa: F401  (the modules make the classes known)
    from kafka.protocol.api_key import ApiKey
    from kafka.protocol.api_message import ApiMessage

    requests = [kind for kind in ApiMessage.__subclasses__() if kind.__name__.endswith("Request")]
    return {int(key): key.name for key in ApiKey}, {kind.API_KEY: kind.max_version for kind in requests}


def _versions(key: int, name: str, low: int, high: int, newest: int | None) -> Row:
    usable = None if newest is None or newest < low else min(newest, high)
    return {"api_key": key, "name": name, "min_version": low, "max_version": high, "usable_version": usable}


def _show(shown: Results, row: Row) -> None:
    title = f"{row['host']}:{row['port']} (id: {row['broker']} rack: {row['rack'] or 'null'} isFenced: {str(row['fenced']).lower()})"
    if row["error"] is not None:
        shown.either(row, lambda: [f"{title} -> ERROR: {row['error']}"])
    elif shown.width is None or shown.as_json:
        shown.either(row, partial(plain, title, row["api_versions"], row["unsupported"]))
    else:
        shown.line(title)
        shown.rows(COLUMNS, row["api_versions"])


def plain(title: str, versions: Sequence[Row], unsupported: Sequence[Row]) -> list[str]:
    """The versions of a broker as printed by Kafka's tool (class NodeApiVersions), sorted by key."""
    lines = {row["api_key"]: f"{row['name']}({row['api_key']}): {_range(row)}" for row in versions}
    lines |= {row["api_key"]: f"{row['name']}({row['api_key']}): UNSUPPORTED" for row in unsupported}
    return [f"{title} -> (", ",\n".join(f"\t{lines[key]}" for key in sorted(lines)), ")"]


def _range(row: Row) -> str:
    low, high, usable = row["min_version"], row["max_version"], row["usable_version"]
    versions = str(low) if low == high else f"{low} to {high}"
    return f"{versions} [unusable: the client has no such version]" if usable is None else f"{versions} [usable: {usable}]"
