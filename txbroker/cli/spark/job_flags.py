"""The flags that the jobs on Spark share, and how a job runs: session, report, messages and exit status."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from txbroker.cli.arguments import add_properties, number
from txbroker.cli.clients import read_properties
from txbroker.cli.spark.setup_command import add_jars, jar_folder
from txbroker.console.failures import DONE, FAILED, USAGE, complain, complain_as_json, warn

if TYPE_CHECKING:
    from txbroker.spark.topic_source import TopicSource

DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True)
class Outcome:
    """`lines`: for standard output, the totals last. `complaints`: what is wrong with the data and what to do. `report`: for --json.

    `faults`: what the job could not do, without harm to the data.
    """

    lines: Sequence[str]
    complaints: Sequence[str]
    report: Mapping[str, Any]
    faults: Sequence[str] = ()

    @property
    def status(self) -> int:
        """The exit status."""
        return FAILED if self.complaints else USAGE if self.faults else DONE


class Job(NamedTuple):
    """What a command does with a session, after its flags were checked. `delta`: whether the session needs Delta."""

    work: Callable[[Any], Outcome]
    delta: bool = True


def add_source(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The flags of `TopicSource`."""
    parser.add_argument("--bootstrap-server", required=required, metavar="HOST:PORT", help="brokers to connect to first, comma-separated")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="a topic; can be specified several times")
    parser.add_argument("--include", metavar="REGEX", help="the topics whose whole name matches, instead of --topic")
    config_help = "a properties file of a Kafka client, with TLS and SASL; Spark's consumers get all of it"
    parser.add_argument("--command-config", metavar="FILE", help=config_help)
    levels = ("read_committed", "read_uncommitted")
    level_help = "whether to leave out records of aborted and open transactions (default: read_committed)"
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help=level_help)
    split_help = "divide a partition into tasks of at most N offsets (default: one task a partition)"
    parser.add_argument("--split", type=number(1), metavar="N", help=split_help)


def source_of(arguments: argparse.Namespace) -> TopicSource:
    """The source by the flags of `add_source`."""
    from txbroker.spark.topic_source import TopicSource

    return TopicSource(
        servers=arguments.bootstrap_server,
        topics=arguments.topic,
        include=arguments.include,
        isolation_level=arguments.isolation_level,
        properties=read_properties(arguments.command_config),
        split=arguments.split,
    )


def add_expired(parser: argparse.ArgumentParser) -> None:
    """What to do about offsets that are gone."""
    expired_help = "if offsets were deleted before they were read: fail (default), or skip them and report how many"
    parser.add_argument("--on-expired", choices=("fail", "skip"), default="fail", help=expired_help)


def add_session(parser: argparse.ArgumentParser) -> None:
    """The flags that `run_job` uses."""
    master_help = f"the Spark master (default: {DEFAULT_MASTER}; under spark-submit that of its flags)"
    parser.add_argument("--master", default=DEFAULT_MASTER, metavar="URL", help=master_help)
    conf_help = "a property of Spark, as for spark-submit; it replaces the one of the job, and spark.jars adds jars"
    add_properties(parser, "--conf", conf_help)
    parser.add_argument("--json", metavar="FILE", help="write a report as JSON; the file exists only if the job has finished")
    parser.add_argument("--html", metavar="FILE", help="write the report as HTML for people, as `txbroker spark report` does")
    add_jars(parser)


def run_job(arguments: argparse.Namespace, name: str, prepare: Callable[[], Job]) -> int:
    """Open a session, run the job with it, print what it found, and write the report; the exit status. CommandFailed.

    `prepare` checks the flags before Spark starts, which takes seconds. The report of an earlier run is removed before that.
    """
    complain_as_json(False)  # --json names a file here
    from txbroker.spark.offset_ranges import WrongData
    from txbroker.spark.reports import remove_report, whole_report, write_file, write_report
    from txbroker.spark.session import check_properties, open_session
    from txbroker.spark.spark_log import spark_log

    for path, flag in ((arguments.json, "--json"), (arguments.html, "--html")):
        if path:
            remove_report(path, flag)
    check_properties(arguments.conf)
    job = prepare()
    try:
        with spark_log() as log:
            spark = open_session(arguments.master, jar_folder(arguments), delta=job.delta, log=log, given=arguments.conf)
            try:
                outcome = job.work(spark)
                version = spark.version
            finally:
                spark.sparkContext.setLogLevel("ERROR")  # a local executor may warn that the driver, which stops, does not answer
                spark.stop()
    except WrongData as wrong:
        return complain(f"txbroker spark {name}", str(wrong), FAILED)
    for line in outcome.lines:
        print(line)
    for problem in (*outcome.complaints, *outcome.faults):
        warn(problem)
    content = {"ok": outcome.status == DONE, **outcome.report}
    if arguments.html:
        from txbroker.spark.html_report import page

        write_file(arguments.html, page(whole_report(name, version, content)), "--html")
    if arguments.json:
        write_report(arguments.json, name, version, content)
    return outcome.status
