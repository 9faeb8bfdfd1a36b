"""`python -m tests.crash`: kill -9 under a produce load, fifty times, then also with damaged files.

Prints the seed. After a failure the data directory is kept, and its path printed. The same seed makes the same choices, but not the same
interleaving of threads.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.ledger import Lost
from tests.crash.rounds import CrashTest, Plan
from tests.support.dump import Unacceptable
from tests.support.server import ServerFailed


def main() -> int:
    """Exit status 0 when nothing was lost, 1 when something was."""
    parser = argparse.ArgumentParser(prog="make crash ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=50, help="number of kills (%(default)s)")
    parser.add_argument("--damage-rounds", type=int, default=20, help="number of kills with damaged files (%(default)s)")
    parser.add_argument("--dump-every", type=int, default=10, help="rounds between two checks with Apache Kafka's tool (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    arguments = parser.parse_args()
    parts = {"kill -9": Plan(f"{arguments.seed}", arguments.rounds, dump_every=arguments.dump_every),
             "kill -9, then damaged files": Plan(f"{arguments.seed} damage", arguments.damage_rounds, True, arguments.dump_every)}
    for title, plan in parts.items():
        if plan.rounds and not run(f"{title}, {plan.rounds} rounds", arguments.seed, plan):
            return 1
    return 0


def run(title: str, seed: str, plan: Plan) -> bool:
    """Run one crash test; whether it passed."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-crash-"))
    print(f"== {title} (--seed {seed}, in {directory})", flush=True)
    plan.say = lambda text: print(text, flush=True)
    started = time.monotonic()
    try:
        CrashTest(directory, plan).run()
    except (Lost, Unacceptable, ServerFailed, AssertionError, OSError) as problem:
        print(f"\nFAILED with --seed {seed}: {problem}\nData and broker.log are kept in {directory}", flush=True)
        return False
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)
    print(f"   nothing was lost ({time.monotonic() - started:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
