"""`python -m tests.transactions`: kill -9 of a broker at every point of a transaction, fifty times."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.transactions.kill_rounds import KillRounds, points


def main() -> int:
    """Exit status 0 when every transaction has ended as a whole."""
    parser = argparse.ArgumentParser(prog="make crash-transactions ARGS=...", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="number of kills (%(default)s)")
    rounds = parser.parse_args().rounds
    directory = Path(tempfile.mkdtemp(prefix="txbroker-transactions-"))
    print(f"== {rounds} kills, in {directory}", flush=True)
    try:
        KillRounds(directory, lambda text: print(text, flush=True)).run(points(rounds))
    except AssertionError as problem:
        print(f"\nFAILED: {problem}\nData and broker.log are kept in {directory}", flush=True)
        return 1
    print("   every transaction ended as a whole", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
