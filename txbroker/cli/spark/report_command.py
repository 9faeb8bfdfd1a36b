"""`txbroker spark report`: a job's JSON report as an HTML file for people."""

from __future__ import annotations

import argparse
from typing import Any

from txbroker.console.failures import DONE
from txbroker.console.input_files import read_json

DESCRIPTION = """\
Make an HTML file for people from the report that a job wrote with --json. It is one file with everything in it, without scripts.

  txbroker spark report audit.json -o audit.html
"""


def add_parser(jobs: Any) -> None:
    """Add the command."""
    parser = jobs.add_parser("report", help="make an HTML file from a job's JSON report", description=DESCRIPTION)
    parser.add_argument("file", metavar="FILE.json", help="the report")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the file to write")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read and write; CommandFailed."""
    from txbroker.spark.html_report import page
    from txbroker.spark.reports import write_file

    write_file(arguments.output, page(read_json(arguments.file)), "--output")
    return DONE
