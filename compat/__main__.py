"""`python -m compat`: every client in these folders against one broker, and the table client x feature."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compat.clients import CLIENTS, HERE, run_client
from compat.matrix import FEATURES, NO, YES, Row, from_markdown, to_markdown, worse
from compat.progress import step
from compat.tables import plain_table
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import Server, ServerFailed

BROKERS: dict[str, type[Server]] = {kind.kind: kind for kind in (BrokerProcess, KafkaProcess, KafkaOldProcess)}
TABLE = HERE / "TABLE.md"


def main() -> int:
    """The exit status: 1 when a cell is worse than TABLE.md says, or there was no broker."""
    options = _options()
    try:
        with _broker(options) as address:
            rows = [_run(name, address, options.features) for name in options.clients]
    except (Missing, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    _print(rows, options.features or FEATURES)
    if options.write:
        TABLE.write_text(to_markdown(rows, options.broker))
        print(f"\n{TABLE} is written")
        return 0
    return _judge(rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat", description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), default=BrokerProcess.kind, help="started on a temporary directory")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--clients", metavar="NAME,...", type=_names, default=list(CLIENTS), help=f"of: {', '.join(CLIENTS)}")
    parser.add_argument("--features", metavar="NAME,...", type=_names, default=[], help=f"of: {', '.join(FEATURES)}")
    parser.add_argument("--write", action="store_true", help="write TABLE.md: all clients and features, txbroker only")
    options = parser.parse_args()
    if unknown := (set(options.clients) - CLIENTS.keys()) | (set(options.features) - set(FEATURES)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    whole = set(options.clients) == CLIENTS.keys() and not options.features
    if options.write and not (whole and options.broker == BrokerProcess.kind and options.bootstrap_server is None):
        parser.error("--write is for the whole table of txbroker")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[str]:
    """The address of a broker."""
    if options.bootstrap_server is not None:
        yield options.bootstrap_server
        return
    with tempfile.TemporaryDirectory(prefix="txbroker-compat-") as directory:
        server = BROKERS[options.broker](Path(directory))
        with step(f"start {server.kind}") as progress:
            server.start()
            progress.finish(server.address)
        try:
            yield server.address
            if not server.running:
                raise ServerFailed(f"the broker ended while clients used it:\n{server.log_tail()}")
            if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log():
                raise ServerFailed(f"the broker logged a traceback:\n{server.log_tail()}")
            server.stop()
        finally:
            server.close()


def _run(name: str, address: str, features: Sequence[str]) -> Row:
    with step(name, len(features or FEATURES)) as progress:

        def heard(feature: str) -> None:
            progress.advance()
            progress.note(feature)

        row = run_client(CLIENTS[name], address, features, heard)
        said = list(row.cells.values())
        progress.finish(f"{row.client} {row.version}: {said.count(YES)} yes, {said.count(NO)} no")
        return row


def _print(rows: Sequence[Row], features: Sequence[str]) -> None:
    print()
    print(plain_table(["client", "version", *features], [[row.client, row.version, *(row.cells[f] for f in features)] for row in rows]))
    for row in rows:
        for feature, detail in row.details.items():
            if row.cells[feature] == NO:
                print(f"\n{row.client} {row.version}, {feature}: {detail}")


def _judge(rows: Sequence[Row]) -> int:
    fallen = worse(rows, from_markdown(TABLE.read_text()) if TABLE.exists() else {})
    print()
    if not fallen:
        print("No cell is worse than in TABLE.md.")
        return 0
    for row, feature in fallen:
        print(f"worse than in TABLE.md: {row.client} {row.version}, {feature}: {row.cells[feature]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
