"""Run the tests of other projects on the fixture `txbroker`: `python -m compat.projects [--broker kafka] [--chosen] [PROJECT ...]`.

The projects are installed from the package index into the cache, in the versions that `project.py` names. The tests run in a network
namespace of their own, as they use localhost:9092. With `--broker kafka` they run on Apache Kafka instead, which is started before them.
Each line is a project with its numbers of tests and the time that the tests took, with the start of the broker.
The exit status is 1 if a test has another outcome than `project.py` says, and 3 if this machine cannot run them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from compat.projects.installation import Installed, install
from compat.projects.outcomes import Outcomes, read_outcomes
from compat.projects.project import PROJECTS
from tests.support import network
from tests.support.cache import CHECKOUT, Missing
from tests.support.kafka import KafkaProcess

CANNOT_RUN = 3
_PORT = 9092
_ATTEMPTS = 3  # each with a new broker: the tests of the projects wait for seconds only, which a busy machine may need


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m compat.projects", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("projects", nargs="*", metavar="PROJECT", help="names of projects, all by default")
    parser.add_argument("--broker", choices=("txbroker", KafkaProcess.kind), default="txbroker")
    parser.add_argument("--chosen", action="store_true", help="only some tests of each project, in some seconds")
    options = parser.parse_args(arguments)
    unknown = set(options.projects) - {project.name for project in PROJECTS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the projects are {', '.join(project.name for project in PROJECTS)}")
    projects = [project for project in PROJECTS if project.name in (options.projects or project.name)]
    try:
        installed = [install(project) for project in projects]  # the namespace has no way to download
    except Missing as problem:
        print(problem, file=sys.stderr)
        return CANNOT_RUN
    if not network.inside():
        print(network.enter("compat.projects", arguments), file=sys.stderr)
        return CANNOT_RUN
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    results = [any(_tried(each, options.broker, chosen=options.chosen) for _ in range(_ATTEMPTS)) for each in installed]
    return int(not all(results))


def _tried(installed: Installed, broker: str, *, chosen: bool) -> bool:
    """Run the tests of a project, and print what they gave; False if that is not what is expected."""
    project = installed.project
    with tempfile.TemporaryDirectory(prefix="txbroker-projects-") as name:
        place = Path(name)
        start = time.monotonic()
        if broker == KafkaProcess.kind:
            outcomes, output = _on_kafka(installed, place, chosen=chosen)
        else:
            outcomes, output = _run(installed, place, ["--txbroker-port", str(_PORT)], chosen=chosen)
        took_s = time.monotonic() - start
    print(f"{project.name} {project.version}: {outcomes.summary()} in {took_s:.0f} s on {broker}", flush=True)
    problems = outcomes.unlike(project.failures)
    if problems:
        print("\n".join(problems), output[-10_000:], sep="\n", file=sys.stderr)
    return not problems


def _on_kafka(installed: Installed, place: Path, *, chosen: bool) -> tuple[Outcomes, str]:
    kafka = KafkaProcess(place / "kafka", {"group.initial.rebalance.delay.ms": "0"})  # as the fixture has it
    kafka.port = _PORT
    try:
        kafka.start()
        return _run(installed, place, ["--txbroker-bootstrap-servers", kafka.address], chosen=chosen)
    finally:
        kafka.kill()


def _run(installed: Installed, place: Path, broker: Sequence[str], *, chosen: bool) -> tuple[Outcomes, str]:
    """The outcomes of pytest's run, and what it printed."""
    project, report = installed.project, place / "report.xml"
    (place / "pytest.ini").touch()  # without the settings of the project and of this checkout
    plugins = "-p", "compat.projects.fixture", "-p", "no:cacheprovider"
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-c", place / "pytest.ini", *plugins, f"--junit-xml={report}"]
    command += [*broker, *project.options]
    if chosen:
        command += ["-k", project.chosen]
    command += ["--pyargs", project.tests] if project.installs_tests else [installed.sources / project.tests]
    environment = installed.environment(CHECKOUT)
    ended = subprocess.run(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return read_outcomes(report), ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
