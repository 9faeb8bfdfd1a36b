"""`python -m tests.cluster_faults`: random faults in a cluster under load, and nothing acknowledged may be lost.

Prints the seed. After a failure the data and the logs of the brokers are kept, and their path printed. The same seed makes the same
choices, but not the same interleaving of processes.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster_faults import faults
from tests.cluster_faults.rounds import OVERRIDES, run
from tests.crash.ledger import Lost
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.server import ServerFailed

NAMES = {fault.__name__: fault for fault in faults.ALL}


def main() -> int:
    """Exit status 0 when nothing was lost, 1 when something was."""
    parser = argparse.ArgumentParser(prog="make crash-cluster ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of clusters (%(default)s)")
    parser.add_argument("--faults", type=int, default=20, help="number of faults in each (%(default)s)")
    parser.add_argument("--plan", metavar="FAULT,FAULT...", help=f"exactly these faults, instead of random ones, of {', '.join(NAMES)}")
    parser.add_argument("--brokers", default=",".join([BrokerProcess.kind] * 3), metavar="KIND,KIND...",
                        help=f"kinds of the brokers, {BrokerProcess.kind} or {KafkaMember.kind} (default: %(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    arguments = parser.parse_args()
    for number in range(1, arguments.rounds + 1):
        chance = random.Random(f"{arguments.seed} {number}")
        drawn = [chance.choice(faults.ALL) for _ in range(arguments.faults)]
        planned = [NAMES[name] for name in arguments.plan.split(",")] if arguments.plan else drawn
        if not one_round(f"round {number}/{arguments.rounds}", arguments, chance, planned):
            return 1
    return 0


def one_round(title: str, arguments: argparse.Namespace, chance: random.Random, planned: list[faults.Fault]) -> bool:
    """One cluster; whether nothing was lost."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-cluster-"))
    print(f"== {title} (--seed {arguments.seed}, in {directory})", flush=True)
    started_s = time.monotonic()
    cluster = Cluster(directory, arguments.brokers.split(","), OVERRIDES)
    try:
        cluster.start()
        run(cluster, planned, chance, lambda text: print(f"   {text}", flush=True))
        for server in cluster.brokers.values():
            if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log():
                raise Lost(f"a broker logged a traceback: {server.log_path}")
    except (Lost, ServerFailed, AssertionError, OSError) as problem:
        print(f"\nFAILED with --seed {arguments.seed}: {problem}\nData and logs are kept in {directory}", flush=True)
        return False
    finally:
        cluster.close()
    shutil.rmtree(directory, ignore_errors=True)
    print(f"   nothing was lost ({time.monotonic() - started_s:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
