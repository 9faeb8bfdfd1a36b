"""`txbroker cluster`: a cluster of several brokers on this machine, for development and tests; and facts of any running cluster."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txbroker.cli.arguments import add_properties, number
from txbroker.cli.cluster import cluster_facts
from txbroker.cli.cluster.cluster_status import NO_BROKER, ClusterStatus, StatusReader
from txbroker.cli.cluster.local_cluster import LocalCluster, Plan
from txbroker.cli.cluster.status_table import changes, table_lines
from txbroker.cli.tables import terminal_width
from txbroker.console.failures import DONE, BadUsage, CommandFailed
from txbroker.platform import system
from txbroker.signals import SignalledEvent

DESCRIPTION = """\
Run a cluster on this machine, for development and tests: ZooKeeper and several brokers, each a process with its own directory. On a
terminal a table shows the brokers and the leader, the in-sync replicas and the lag of each partition; elsewhere a line is printed for
each change. Ctrl-C and SIGTERM stop all brokers cleanly, then ZooKeeper; a second one ends them at once.

  txbroker cluster --brokers 3 --dir ./cluster
  txbroker cluster --brokers 5 --dir ./cluster --port 19092 --override num.partitions=6

Brokers that end, because you kill them for example, are shown as ended. Start one again with its own configuration:

  txbroker run --config ./cluster/broker-2/server.properties

The same --dir continues with the same topics and records. ZooKeeper is Debian's package (apt-get install zookeeper) if it is installed;
otherwise Maven fetches it once. Both need Java.

The commands for a running cluster are those of Kafka's kafka-cluster:

  txbroker cluster list-endpoints --bootstrap-server 127.0.0.1:9092
"""

REFRESH_S = 1.0
BROKERS_MAX = 100


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    summary = "run a cluster of several brokers on this machine, or list the brokers of one"
    parser = subparsers.add_parser("cluster", help=summary, description=DESCRIPTION)
    parser.add_argument("--brokers", type=number(1), default=3, metavar="N", help="the number of brokers (default: %(default)s)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="the directory for all data, configurations and logs (required)")
    parser.add_argument("--port", type=number(1), default=9092, metavar="PORT",
                        help="the port of broker 1; the others take the next ones (default: %(default)s)")
    parser.add_argument("--zookeeper-port", type=number(1), default=2181, metavar="PORT",
                        help="the port of ZooKeeper (default: %(default)s)")
    add_properties(parser, "--override", "a configuration value of every broker")
    parser.set_defaults(command=run)
    cluster_facts.add_parsers(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM. CommandFailed if a process cannot start or does not end cleanly."""
    plan = _plan(arguments)
    stop, hurry = SignalledEvent(), SignalledEvent()
    with _signals(stop, hurry):
        cluster = LocalCluster(plan, _say, hurry)
        reader = StatusReader(plan.addresses)
        try:
            cluster.start(stop)
            _watch(cluster, reader, plan, stop)
        finally:
            reader.close()
            if stop.is_set():
                _say("stopping")
            problems = cluster.stop()
    if problems:
        raise CommandFailed("; ".join(problems))
    return DONE


@contextmanager
def _signals(stop: SignalledEvent, hurry: SignalledEvent) -> Iterator[None]:
    """The first signal sets `stop`, a second one `hurry`."""
    def end(number: int, frame: Any) -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    before = {each: signal.signal(each, end) for each in system.ending_signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.dir is None:
        raise BadUsage("the following arguments are required: --dir")
    if arguments.brokers > BROKERS_MAX:
        raise BadUsage(f"--brokers must be at most {BROKERS_MAX}")
    plan = Plan(arguments.dir.absolute(), arguments.brokers, arguments.port, arguments.zookeeper_port, arguments.override)
    ports = [arguments.zookeeper_port, *(port for _, port in plan.addresses.values())]
    if max(ports) > 65535 or len(set(ports)) < len(ports):
        raise BadUsage(f"the ports {plan.port} to {plan.port + plan.brokers - 1} of the brokers and {plan.zookeeper_port} of ZooKeeper "
                       "must differ and be at most 65535")
    return plan


def _watch(cluster: LocalCluster, reader: StatusReader, plan: Plan, stop: SignalledEvent) -> None:
    """Show what happens until `stop`. Until all brokers have served once, it is an error if one ends."""
    before, before_states = ClusterStatus(), dict[int, str]()
    ready = False
    heading = [f"bootstrap servers: {plan.bootstrap}",
               f"ZooKeeper: {plan.zookeeper}; data and logs: {plan.directory}; Ctrl-C stops all", ""]
    names = {broker_id: f"{host}:{port}" for broker_id, (host, port) in plan.addresses.items()}
    while not stop.is_set():
        cluster.check_zookeeper()
        if not ready:
            cluster.check_brokers()
        status = reader.read()
        states = cluster.states(status.answering, status.listed)
        width = terminal_width()
        if width is None:
            for line in changes(before, before_states, status, states):
                _say(line)
        else:
            _show([*heading, *table_lines(status, states, names, width, shutil.get_terminal_size().lines - len(heading) - 1)])
        if not ready and status.answering == status.listed == plan.addresses.keys() and status.controller != NO_BROKER:
            ready = True
            if width is None:
                _say(f"the cluster is ready: --bootstrap-server {plan.bootstrap}")
        before, before_states = status, states
        stop.wait(REFRESH_S)


def _show(lines: list[str]) -> None:
    """Replace what is on the terminal: home, each line to its end, then everything below."""
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    sys.stdout.flush()


def _say(line: str) -> None:
    print(line, flush=True)
