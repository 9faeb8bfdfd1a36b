"""`make crash-mirror`: kill -9 of the mirror, and of the target, at random moments while it copies, then compare both sides."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.mirror.test_resuming import kill_rounds
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaProcess


def main() -> None:
    """So many kills, with another topic after each ten."""
    parser = argparse.ArgumentParser(prog="make crash-mirror ARGS=...", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="how often the mirror is killed (default: 50)")
    kinds = {"txbroker": BrokerProcess, "kafka": KafkaProcess}
    parser.add_argument("--target", choices=kinds, default="txbroker", help="the broker that the mirror copies to (default: txbroker)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the random numbers (default: a new one)")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source, target = BrokerProcess(Path(folder) / "source"), kinds[arguments.target](Path(folder) / "target")
        source.start()
        target.start()
        try:
            for topic, done in enumerate(range(0, arguments.kills, 10)):
                kills = min(10, arguments.kills - done)
                kill_rounds(source, target, f"killed-{topic}", rounds=kills, seed=arguments.seed + topic, target_too=True)
                print(f"{done + kills} kills: nothing is lost or doubled", flush=True)
        finally:
            source.close()
            target.close()


if __name__ == "__main__":
    main()
