"""`txbroker spark files`: the data files of a Parquet table, for programs that do not read its manifests."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbroker.console.failures import DONE, FAILED, CommandFailed, warn
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.tables.manifests import DataFile

DESCRIPTION = """\
List the data files of a Parquet table that `txbroker spark load` wrote, one path a line. Only these files are the table: the folder may
also have files of a load that was killed.

  txbroker spark files --table ./warehouse/orders
  txbroker spark files --table ./warehouse/orders --verify
  duckdb -c "SELECT count(*) FROM read_parquet([$(txbroker spark files --table ./warehouse/orders | sed "s/.*/'&'/" | paste -sd,)])"

It needs neither Spark nor a broker. --long adds size, rows and the SHA-256 of the footer, separated by tabs. --verify compares size and
footer of each file with the manifest.

Exit status: 0 done, 1 --verify found files that are missing or differ, 2 wrong usage or a fault.
"""


def add_parser(jobs: Any) -> None:
    """Add the command."""
    parser = jobs.add_parser("files", help="list the data files of a Parquet table", description=DESCRIPTION)
    parser.add_argument("--table", required=True, metavar="DIR", help="the table's folder")
    parser.add_argument("--long", action="store_true", help="with size in bytes, rows and SHA-256 of the footer")
    parser.add_argument("--verify", action="store_true", help="compare the files with the manifest")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """List, or verify; CommandFailed."""
    from txbroker.spark.tables.manifests import Manifests
    from txbroker.spark.tables.table_folder import PARQUET, folder, format_of

    table = folder(arguments.table)
    if (found := format_of(table)) != PARQUET:
        advice = "a Delta table, which engines read by its own log" if found else "no table"
        raise CommandFailed(f"{table} has {advice}; specify the folder of a Parquet table")
    state = Manifests(table).newest()
    files = [] if state is None else list(state.files.values())
    if arguments.verify:
        return _verify(table, files)
    for one in files:
        path = str(table / one.path)
        print("\t".join([path, str(one.bytes), str(one.rows), one.footer_sha256]) if arguments.long else path)
    return DONE


def _verify(table: Path, files: list[DataFile]) -> int:
    from txbroker.spark.tables.parquet import footer_of

    wrong = 0
    for one in files:
        path = table / one.path
        try:
            differs = footer_of(path) != (one.bytes, one.footer_sha256)
            problem = f"{path} is not the file that was loaded; restore it from a backup of the table" if differs else None
        except CommandFailed as failed:
            problem = str(failed)
        if problem:
            wrong += 1
            warn(problem)
    rows = sum(one.rows for one in files)
    print(f"{amount(len(files), 'file')} with {amount(rows, 'row')}, {wrong} missing or different")
    return FAILED if wrong else DONE
