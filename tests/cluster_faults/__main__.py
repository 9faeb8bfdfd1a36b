"""`make chaos`: random faults in a cluster under load, one or several at a time, and the check of what the clients have seen.

Prints the seed. The same seed makes the same choices, but not the same interleaving of processes. After a failure the history, the data
and the logs of the brokers are kept, and their path printed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulation.histories import check, from_line
from tests.cluster_faults import faults
from tests.cluster_faults.journal import FILE
from tests.cluster_faults.rounds import OVERRIDES, plan, run, tracebacks
from tests.crash.ledger import Lost
from tests.support import network
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.network import Network
from tests.support.server import ServerFailed

CLIENT_LOGS = "clients.log"
ROUND_MINUTES = 10.0
ZOOKEEPERS = 3


def main() -> int:
    """Exit status 0 without an anomaly, 1 with one or when the cluster does not recover."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--minutes", type=float, default=10, help="how long faults are made, in clusters of 10 minutes each (%(default)s)")
    parser.add_argument("--kind", default=BrokerProcess.kind, metavar="KIND[,KIND...]",
                        help=f"of all brokers or of each: {BrokerProcess.kind} or {KafkaMember.kind} (default: %(default)s)")
    parser.add_argument("--plan", metavar="FAULT[+FAULT...][,FAULT...]",
                        help=f"exactly these faults, once, instead of random ones; of {', '.join(faults.NAMES)}")
    parser.add_argument("--together", type=float, default=0.4, help="the share of several faults at the same time (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--client-logs", action="store_true",
                        help=f"write what librdkafka's transactional producers do, and all of stderr, to {CLIENT_LOGS} in the directory")
    parser.add_argument("--check", type=Path, metavar=FILE, help="check the history of an earlier run, and nothing else")
    arguments = parser.parse_args()
    if arguments.check is not None:
        try:
            return check_file(arguments.check)
        except (OSError, ValueError) as error:
            parser.error(f"--check needs the history of a run: {str(error).strip()}")
    if not arguments.minutes > 0 or not 0 <= arguments.together <= 1:
        parser.error("--minutes must be above 0, and --together from 0 to 1")
    kinds = arguments.kind.split(",")
    unknown = sorted({*kinds} - {BrokerProcess.kind, KafkaMember.kind})
    if unknown:
        parser.error(f"--kind: {', '.join(unknown)}: a kind is {BrokerProcess.kind} or {KafkaMember.kind}")
    unknown = sorted(set(re.split("[+,]", arguments.plan)) - faults.NAMES.keys()) if arguments.plan else []
    if unknown:
        parser.error(f"--plan: {', '.join(unknown)}: a fault is one of {', '.join(faults.NAMES)}")
    if not network.inside():
        problem = network.enter("tests.cluster_faults", sys.argv[1:])
        print(f"without faults of the network and of disks: namespaces cannot be made ({problem})", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if arguments.plan and not any(given(arguments.plan)):
        parser.error("--plan: this process can make none of these faults")
    kinds = kinds * 3 if len(kinds) == 1 else kinds
    hosts = Network() if network.inside() else None
    end_s = time.monotonic() + arguments.minutes * 60
    made: Counter[str] = Counter()
    for number in itertools.count(1):
        chance = random.Random(f"{arguments.seed} {number}")
        round_end_s = min(end_s, time.monotonic() + ROUND_MINUTES * 60)
        planned = given(arguments.plan) if arguments.plan else iter(plan(chance, faults.possible(), arguments.together))
        if not one_round(f"cluster {number} of {', '.join(kinds)} (--seed {arguments.seed})", kinds, hosts, chance,
                         counted(planned, made, round_end_s if not arguments.plan else float("inf")), debug=arguments.client_logs):
            return 1
        if arguments.plan or time.monotonic() > end_s:
            break
    print(f"no anomaly; faults: {', '.join(f'{name} {count}' for name, count in sorted(made.items()))}", flush=True)
    return 0


def given(text: str) -> Iterator[Sequence[faults.Fault]]:
    """The faults of a plan that this process can make."""
    possible = faults.possible()
    for names in text.split(","):
        these = [fault for fault in map(faults.NAMES.__getitem__, names.split("+")) if fault in possible]
        if these:
            yield these


def counted(planned: Iterator[Sequence[faults.Fault]], made: Counter[str], end_s: float) -> Iterator[Sequence[faults.Fault]]:
    """The planned faults until some time, and how often each was made."""
    for these in planned:
        if time.monotonic() > end_s:
            return
        made.update(fault.__name__ for fault in these)
        yield these


def one_round(title: str, kinds: Sequence[str], hosts: Network | None, chance: random.Random,
              planned: Iterator[Sequence[faults.Fault]], *, debug: bool = False) -> bool:
    """One cluster; whether there was no anomaly."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-chaos-"))
    if debug:
        with (directory / CLIENT_LOGS).open("w") as logs:
            os.dup2(logs.fileno(), sys.stderr.fileno())
    print(f"== {title}, in {directory}", flush=True)
    started_s = time.monotonic()
    cluster = Cluster(directory, kinds, OVERRIDES, zookeepers=ZOOKEEPERS, network=hosts)
    try:
        if hosts is not None:
            faults.mount_disks(cluster)
        cluster.start()
        run(cluster, planned, chance, lambda text: print(f"   {text}", flush=True), full=True, debug=debug)
        tracebacks(cluster)
    except (Lost, ServerFailed, AssertionError, OSError) as problem:
        if hosts is not None:
            faults.keep_disks(cluster)
        print(f"\nFAILED: {title}: {problem}\nHistory, data and logs are kept in {directory}", flush=True)
        return False
    finally:
        cluster.close()
        if hosts is not None:
            hosts.restore()
            faults.unmount_disks(cluster)
    shutil.rmtree(directory, ignore_errors=True)
    print(f"   no anomaly ({time.monotonic() - started_s:.0f} s)", flush=True)
    return True


def check_file(path: Path) -> int:
    """Print the anomalies in a file of JSON lines."""
    with path.open() as lines:
        anomalies = check(map(from_line, lines))
    for anomaly in anomalies:
        print(anomaly)
    return 1 if anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
