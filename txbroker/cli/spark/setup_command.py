"""`txbroker spark setup`: fetch the jars that Spark needs, and check the versions of everything that the jobs use."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from txbroker.console.failures import DONE, CommandFailed, warn
from txbroker.spark import jars

DESCRIPTION = """\
Fetch the jars that PySpark needs to read topics and to write Delta tables, with Maven, into one folder. Then check that PySpark, Java,
Scala and the jars fit each other. Every job makes the same check before it starts.

  txbroker spark setup
  txbroker spark setup --jars /srv/spark/jars
  txbroker spark setup --check
"""


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("setup", help="fetch the jars that Spark needs, and check all versions", description=DESCRIPTION)
    add_jars(parser)
    parser.add_argument("--check", action="store_true", help="fetch nothing, only check")
    parser.set_defaults(command=run)


def add_jars(parser: argparse.ArgumentParser) -> None:
    """The flag for the folder of the jars."""
    parser.add_argument("--jars", type=Path, metavar="DIR", help="the folder of the jars (default: in the user's cache directory)")


def jar_folder(arguments: argparse.Namespace) -> Path:
    """The folder by the flags."""
    return arguments.jars.absolute() if arguments.jars is not None else jars.default_folder()


def run(arguments: argparse.Namespace) -> int:
    """Fetch and check; CommandFailed with the number of problems, each of which is a line on standard error."""
    folder = jar_folder(arguments)
    if not arguments.check and jars.jar_problems(folder, delta=True):
        jars.fetch(folder)
    problems = jars.problems(folder)
    for problem in problems:
        warn(problem)
    if problems:
        raise CommandFailed("the jobs cannot run yet; correct what is listed above, and run this again")
    print(f"PySpark {jars.spark_version()} and the jars in {folder} fit each other:")
    for jar in jars.required():
        print(f"  {jar.name}")
    return DONE
