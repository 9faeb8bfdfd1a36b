"""`python -m compat`: run every client in these folders on a broker, and print the tables of clients and features."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from compat.board import Board
from compat.brokers import BROKERS, MEMBERS, REPLICAS, Place, brokers_for
from compat.clients import CLIENTS, HERE
from compat.matrix import CELLS, FEATURES, NO, TOOLS, YES, Row, worse
from compat.page import ONE, SEVERAL, Edition, Page, from_markdown, replaced, to_markdown
from compat.running import run_client
from compat.tables import plain_table
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.kafka import KafkaMember, KafkaProcess
from tests.support.server import ServerFailed

# The kinds of brokers in the tables of each page.
_OURS = BrokerProcess.kind
_KAFKAS = {ONE: KafkaProcess.kind, SEVERAL: KafkaMember.kind}


def main() -> int:
    """The exit status: 1 when a cell is worse than in the table, for this broker or for Apache Kafka, or when a broker failed."""
    options = _options()
    board = Board(len(options.clients), sys.stdout)
    with ThreadPoolExecutor(options.jobs) as pool:
        tried = list(pool.map(lambda name: _try(name, options, board), options.clients))
    rows = {name: row for name, row in zip(options.clients, tried, strict=True) if row is not None}
    _print(rows)
    if len(rows) < len(options.clients):
        print("\nNot every client was tried.")
        return 1
    edition = _edition(options.brokers)
    table = HERE / edition.file
    page = from_markdown(table.read_text()) if table.exists() else {}
    half = {_OURS: edition.ours, _KAFKAS[edition]: edition.kafka}.get(options.broker)
    if options.write and half is not None:
        page[half] = replaced(page.get(half, {}), _by_kind(rows), [client.title for client in CLIENTS.values()])
        table.write_text(to_markdown(page, edition))
        print(f"\n{table} is written")
        return 0
    return _judge(rows, page, edition.file, [] if half is None else list(dict.fromkeys([half, edition.kafka])))


def _edition(brokers: int) -> Edition:
    return ONE if brokers == 1 else SEVERAL


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat", description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), default=BrokerProcess.kind, help="the broker to start for each client")
    parser.add_argument("--brokers", type=int, choices=(1, REPLICAS), default=1,
                        help="number of brokers to start for each client (default 1)")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="use a running broker, or a cluster")
    parser.add_argument("--clients", metavar="NAME,...", type=_names, default=[], help=f"of: {', '.join(CLIENTS)}")
    parser.add_argument("--features", metavar="NAME,...", type=_names, default=[],
                        help="; ".join(f"of {kind}: {', '.join(features)}" for kind, features in FEATURES.items()))
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="number of clients that run at the same time (default 2)")
    parser.add_argument("--write", action="store_true", help="write these cells into the table")
    options = parser.parse_args()
    several = options.brokers > 1
    if several and (options.bootstrap_server is not None or options.broker not in MEMBERS):
        parser.error(f"--brokers {options.brokers} requires --broker {' or '.join(MEMBERS)}, without --bootstrap-server")
    # Kafka's tools describe the one broker.
    options.clients = options.clients or [name for name, client in CLIENTS.items() if not several or client.kind != TOOLS]
    known = {feature for features in FEATURES.values() for feature in features}
    if unknown := (set(options.clients) - CLIENTS.keys()) | (set(options.features) - known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if options.features:
        options.clients = [name for name in options.clients if set(options.features) & set(CLIENTS[name].features)]
    if several and any(CLIENTS[name].kind == TOOLS for name in options.clients):
        parser.error("Kafka's tools are tried on one broker only: choose other --clients")
    halves = (_OURS, _KAFKAS[_edition(options.brokers)])
    if options.write and (options.bootstrap_server is not None or options.broker not in halves):
        parser.error(f"--write requires --broker {' or '.join(halves)}, without --bootstrap-server")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


def _try(name: str, options: argparse.Namespace, board: Board) -> Row | None:
    """A client's row; None when its broker did not start, or failed."""
    client = CLIENTS[name]
    features = [feature for feature in client.features if not options.features or feature in options.features]
    done = 0

    def heard(feature: str) -> None:
        nonlocal done
        done += 1
        board.at(client.title, f"{done} of {len(features)}, {feature}")

    board.at(client.title, "starts")
    try:
        given = options.bootstrap_server
        with brokers_for(name, options.broker, options.brokers) if given is None else contextlib.nullcontext(Place(given)) as place:
            row = run_client(client, place.address, features, heard, place.changes)
    except (Missing, ServerFailed, OSError) as problem:
        board.finish(client.title, f"failed: {problem}")
        return None
    said = list(row.cells.values())
    counted = ", ".join(f"{said.count(cell)} {cell}" for cell in CELLS if cell in said)
    broken = "".join(f"\n    {feature}: {row.details.get(feature, '')}" for feature, cell in row.cells.items() if cell == NO)
    board.finish(client.title, f"{row.version}: {counted}", broken)
    return row


def _by_kind(rows: Mapping[str, Row]) -> dict[str, list[Row]]:
    return {kind: [row for name, row in rows.items() if CLIENTS[name].kind == kind] for kind in FEATURES}


def _print(rows: Mapping[str, Row]) -> None:
    for kind, found in _by_kind(rows).items():
        if not found:
            continue
        features = [feature for feature in FEATURES[kind] if any(feature in row.cells for row in found)]
        print()
        cells = [[row.client, row.version, *(row.cells[feature] for feature in features)] for row in found]
        print(plain_table(["client", "version", *features], cells))
        for row in found:
            for feature, detail in row.details.items():
                if row.cells[feature] != YES:
                    print(f"{row.client}, {feature}: {row.cells[feature]}: {detail}")


def _judge(rows: Mapping[str, Row], page: Page, file: str, halves: Sequence[str]) -> int:
    fallen = _fallen(_by_kind(rows), page, halves)
    print()
    if not fallen:
        print(f"No cell is worse than {file} says." if halves else f"{file} has no cells for this broker.")
        return 0
    print("\n".join(fallen))
    return 1


def _fallen(rows: Mapping[str, Sequence[Row]], page: Page, halves: Sequence[str]) -> list[str]:
    return [f"worse than in the table ({half}: {other}): {row.client}, {feature}: {row.cells[feature]}"
            for half in halves for kind, found in rows.items() for row, feature, other in worse(found, page.get(half, {}).get(kind, []))]


if __name__ == "__main__":
    sys.exit(main())
