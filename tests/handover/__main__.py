"""`python -m tests.handover`: random compacted logs, cleaned by Apache Kafka and by txbroker, compared in rounds."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.handover.comparing import compare_varied
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess


def main() -> None:
    """Run the rounds; prints the seed, then an AssertionError shows a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.handover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--topics", type=int, default=20, help="topics a round (default: 20)")
    parser.add_argument("--seed", type=int, help="of the first round; the others count up from it (default: another one each time)")
    arguments = parser.parse_args()
    first = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    for seed in range(first, first + arguments.rounds):
        with tempfile.TemporaryDirectory(prefix="txbroker-handover-") as place:
            print(f"seed {seed}", flush=True)
            topics = {"offsets.topic.num.partitions": "2"}
            kafka = KafkaOldProcess(Path(place) / "kafka", {**topics, "transaction.state.log.num.partitions": "2"})
            ours = BrokerProcess(Path(place) / "ours", topics)
            try:
                print(compare_varied(kafka, ours, seed, arguments.topics), flush=True)
            finally:
                ours.close()
                kafka.close()


if __name__ == "__main__":
    main()
