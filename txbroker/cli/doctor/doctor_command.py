"""`txbroker doctor`: runs the checks, from the bootstrap servers' names to a topic's segments."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number
from txbroker.cli.own_connections import security_of
from txbroker.cli.results import results
from txbroker.console.addresses import addresses
from txbroker.console.failures import DONE, FAILED, BadUsage

SAMPLE_S = 11  # in this time a consumer commits twice, by Kafka's default of auto.commit.interval.ms, 5 s

if TYPE_CHECKING:
    from txbroker.cli.doctor.cluster_checks import Cluster
    from txbroker.cli.doctor.findings import Findings
    from txbroker.client.blocking_connection import BlockingConnection
    from txbroker.client.client_security import ClientSecurity

DESCRIPTION = """\
Find out what is wrong with a cluster, and why a client cannot connect, records do not expire or are not compacted, or a group lags.

  txbroker doctor --bootstrap-server 127.0.0.1:9092
  txbroker doctor --bootstrap-server 127.0.0.1:9092 --topic orders --group billing
  txbroker doctor --bootstrap-server 127.0.0.1:9092 --topic orders --log-dir /srv/txbroker
  txbroker doctor --bootstrap-server broker.example.org:9092 --command-config client.properties

Without --topic and --group it checks the whole cluster: brokers that do not run, leaders, in-sync replicas, log directories, uncleanable
partitions, late transactions, and the lag of all groups. With them it explains one topic or group. A lag is judged by two samples: whether
the group falls behind, or when it catches up.

Run it on the client's machine: it resolves names, connects to the advertised addresses and sends requests, as a client does. Each check
is ok, a warning or failed, and says what was found and what to do. With TLS and SASL in --command-config it checks certificates (dates and
the clock of this machine, names, authorities), mechanisms and the user, too. It changes nothing, and works with Apache Kafka too.
Exit status: 0 when no check failed, 1 when one did. Groups that do not catch up fail the check of a whole cluster; with --group this is a
warning.
"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("doctor", help="find out why clients, topics or groups do not work", description=DESCRIPTION)
    add_client(parser)
    parser.add_argument("--topic", metavar="NAME", help="check this topic: leaders, replicas, expiry, compaction")
    parser.add_argument("--group", metavar="NAME", help="check this consumer group: state, members, lag")
    directory_help = "with --topic, on the broker's machine: read the segments in this log directory"
    parser.add_argument("--log-dir", metavar="DIR", help=directory_help)
    interval_help = "the time between the two samples of a lag; it must be longer than the time between commits (default: %(default)s)"
    parser.add_argument("--interval", type=number(0, 3600), default=SAMPLE_S, metavar="SECONDS", help=interval_help)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run all checks; 1 if one failed."""
    from txbroker.cli.doctor.findings import Findings
    from txbroker.client.client_errors import ConnectionFailed

    if arguments.log_dir is not None and arguments.topic is None:
        raise BadUsage("--log-dir needs --topic")
    security = security_of(clients.read_properties(arguments.command_config))
    findings = Findings(results(arguments))
    with ExitStack() as stack:
        try:
            _check(findings, arguments, security, stack)
        except ConnectionFailed as problem:
            findings.failed("connection", f"it was lost: {problem}", "see the broker's log, and try again")
    return DONE if findings.finish() else FAILED


def _check(findings: Findings, arguments: argparse.Namespace, security: ClientSecurity | None, stack: ExitStack) -> None:
    from txbroker.cli.doctor import cluster_checks as clusters
    from txbroker.cli.doctor import disk_checks, group_checks, sweep
    from txbroker.cli.doctor.network_checks import CLIENT, reach

    connections: list[BlockingConnection] = []
    for host, port in addresses(arguments.bootstrap_server):
        connection = reach(findings, "bootstrap server", host, port, "--bootstrap-server", CLIENT._replace(security=security))
        if connection is not None:
            stack.callback(connection.close)
            connections.append(connection)
    usable = [connection for connection in connections if clusters.check_versions(findings, connection)]
    answers = [(connection, answer) for connection in usable if (answer := clusters.check_cluster(findings, connection)) is not None]
    if not answers:
        return
    ids = {answer.cluster_id for _, answer in answers}
    if len(ids) > 1:
        names = ", ".join(f"{connection.address} ({answer.cluster_id})" for connection, answer in answers)
        findings.failed("bootstrap servers", f"they belong to different clusters: {names}", "name only brokers of one cluster")
    connection, answer = answers[0]
    cluster = clusters.check_advertised(findings, connection, answer)
    stack.callback(cluster.close)
    clusters.check_controller(findings, cluster)
    disk_checks.check(findings, cluster)
    if arguments.topic is not None:
        _check_topic(findings, connection, cluster, arguments.topic, arguments.log_dir)
    if arguments.group is not None:
        group_checks.check(findings, connection, cluster, arguments.group, arguments.interval)
    if arguments.topic is None and arguments.group is None:
        sweep.check(findings, cluster, arguments.interval)


def _check_topic(findings: Findings, connection: BlockingConnection, cluster: Cluster, topic: str, log_dir: str | None) -> None:
    from txbroker.cli.doctor import compaction_checks, disk_checks, expiry_checks, replica_checks, segment_files, transaction_checks
    from txbroker.cli.doctor import topic_checks as topics

    if log_dir is not None:
        disk_checks.check_local(findings, log_dir)
    partitions = topics.find(findings, connection, topic)
    if not partitions:
        return
    replica_checks.check(findings, cluster, topic, partitions)
    transaction_checks.check(findings, cluster, topic, partitions, int(time.time() * 1000))
    configs = topics.configs(findings, connection, cluster, topic)
    if configs is None:
        return
    topics.check_min_isr(findings, topic, partitions, configs)
    known = topics.facts(cluster, topic, partitions)
    if log_dir is not None and not segment_files.read_segments(log_dir, topic, known):
        findings.warning(f"files of {topic}", f"{log_dir} has no partition of it", "specify another one of the broker's log.dirs")
    if not known:
        findings.warning(f"records of {topic}", "none of its leaders can be reached", "see the advertised addresses and leaders above")
        return
    now_ms = int(time.time() * 1000)
    for finding in expiry_checks.explain(configs, known, now_ms):
        findings.add(finding)
    for finding in compaction_checks.explain(configs, known):
        findings.add(finding)
