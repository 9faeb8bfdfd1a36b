"""`python -m tests.transactions`: kill -9 of a broker at every point of a transaction, fifty times; with --cluster, of each of three.

With --applications, of each of three brokers in turn, while applications read, process and write in transactions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster
from tests.transactions.applications import SETTINGS, survive_kills
from tests.transactions.cluster_kill_rounds import EVERY, ClusterKillRounds
from tests.transactions.kill_rounds import KillRounds, points


def main() -> int:
    """Exit status 0 when every transaction has ended as a whole."""
    parser = argparse.ArgumentParser(prog="make crash-transactions ARGS=...", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="number of kills (%(default)s)")
    parser.add_argument("--cluster", action="store_true", help="three brokers: at every point each of them is killed")
    parser.add_argument("--applications", action="store_true", help="three brokers under applications that read, process and write")
    arguments = parser.parse_args()
    rounds = min(arguments.rounds, len(EVERY)) if arguments.cluster else arguments.rounds
    directory = Path(tempfile.mkdtemp(prefix="txbroker-transactions-"))
    print(f"== {rounds} kills, in {directory}", flush=True)
    try:
        if arguments.applications:
            cluster = Cluster(directory, overrides=SETTINGS)
            try:
                cluster.start()
                survive_kills(cluster, (1 + number % 3 for number in range(rounds)), _say)
            finally:
                cluster.close()
        elif arguments.cluster:
            ClusterKillRounds(directory, _say).run(EVERY[:rounds])
        else:
            KillRounds(directory, _say).run(points(rounds))
    except AssertionError as problem:
        print(f"\nFAILED: {problem}\nData and broker.log are kept in {directory}", flush=True)
        return 1
    print("   every transaction ended as a whole", flush=True)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
