"""`python -m tests.damage`: damage every file of a log directory in every way before a start.

A consumer may only read what was written, and undamaged logs must be complete. Prints the seed and the outcomes.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
from collections import Counter

from simulation.memory_disk import MemoryDisk
from tests.damage.sweep import DAMAGES, make_template, sweep
from tests.support.fakes.disk_path import DiskPath


def main() -> int:
    """Exit status 0 when all checks passed, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="make damage ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds over all files and kinds of damage (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    arguments = parser.parse_args()
    logging.disable()  # warnings about the damage
    directory = DiskPath(MemoryDisk(), "/damage")
    root = (directory / "template").made()
    written = make_template(root)
    for number in range(arguments.rounds):
        for damage in DAMAGES:
            for clean in (True, False):
                seed = f"{arguments.seed} {number}"
                try:
                    outcomes = sweep(root, written, directory, damage, clean=clean, seed=seed)
                except AssertionError as problem:
                    print(f"\nFAILED: {damage.__name__}, {'clean' if clean else 'killed'}, --seed {arguments.seed}: {problem}")
                    return 1
                counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(outcomes.values()).items()))
                print(f"{number + 1}: {damage.__name__}, {'clean' if clean else 'killed'}: {counts}", flush=True)
    print(f"passed (--seed {arguments.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
