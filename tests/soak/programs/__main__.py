"""One producer or one member of a group, until SIGTERM. It reports on standard output:

    ready                             SIGTERM is handled from now on
    acked PARTITION OFFSET NUMBER     a sample of the acknowledgements
    last PARTITION NUMBER             at the end: all records up to NUMBER were acknowledged
    read TOPIC PARTITION FIRST LAST   what a member received, before it commits
    rebalanced                        a commit failed because of a rebalance
"""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import sys
import time

from tests.soak.programs.interface import Library, Record

ACK_REPORTED_EVERY = 17
BURST_MAX = 40

_ended = False


def _end(*_: object) -> None:
    global _ended
    _ended = True


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _value(name: str, number: int, chance: random.Random) -> bytes:
    size = chance.choice((10, 100, 300, 1000, 2000))
    return f"{name} {number} ".encode() + chance.randbytes(size // 2).hex().encode()


def produce(library: Library, options: argparse.Namespace) -> None:
    """Bursts of records to all partitions of a topic, at a rate."""
    chance = random.Random(options.name)
    sender = library.sender(options.address, codec=options.codec, idempotent=options.idempotent, acks=options.acks)
    numbers = [0] * options.partitions
    acked: list[tuple[int, int, int]] = []
    due = time.monotonic()
    while not _ended:
        burst = chance.randint(1, BURST_MAX)
        for _ in range(burst):
            partition = chance.randrange(options.partitions)
            numbers[partition] += 1
            number = numbers[partition]

            def done(offset: int, partition: int = partition, number: int = number) -> None:
                if not number % ACK_REPORTED_EVERY and options.acks != "0":
                    acked.append((partition, offset, number))

            sender.send(Record(options.topic, partition, b"key-%d" % (number % 7), _value(options.name, number, chance)), done)
        due = max(due + burst / options.rate, time.monotonic() - 1)
        while True:
            sender.poll(min(0.2, max(0.0, due - time.monotonic())))
            while acked:
                _say("acked {} {} {}".format(*acked.pop()))
            if _ended or time.monotonic() >= due:
                break
    sender.close()
    if options.acks != "0":
        for partition, number in enumerate(numbers):
            _say(f"last {partition} {number}")


def consume(library: Library, options: argparse.Namespace) -> None:
    """Read as a member of a group: report, then commit."""
    member = library.member(options.address, group=options.group, topics=options.topics.split(","), static=options.static)
    while not _ended:
        runs: dict[tuple[str, int], list[list[int]]] = {}
        for topic, partition, offset in member.poll():
            of = runs.setdefault((topic, partition), [])
            if of and offset == of[-1][1] + 1:
                of[-1][1] = offset
            else:
                of.append([offset, offset])
        for (topic, partition), found in runs.items():
            for first, last in found:
                _say(f"read {topic} {partition} {first} {last}")
        if runs and not member.commit():
            _say("rebalanced")
    member.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("confluent", "kafka_python", "aio"))
    parser.add_argument("--address", required=True)
    kinds = parser.add_subparsers(dest="kind", required=True)
    producer = kinds.add_parser("produce")
    producer.add_argument("--name", required=True)
    producer.add_argument("--topic", required=True)
    producer.add_argument("--partitions", type=int, required=True)
    producer.add_argument("--codec", required=True)
    producer.add_argument("--acks", default="all")
    producer.add_argument("--idempotent", action="store_true")
    producer.add_argument("--rate", type=float, required=True)
    consumer = kinds.add_parser("consume")
    consumer.add_argument("--group", required=True)
    consumer.add_argument("--topics", required=True)
    consumer.add_argument("--static")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the soak test
    _say("ready")
    library: Library = importlib.import_module(f"tests.soak.programs.{options.library}").LIBRARY
    (produce if options.kind == "produce" else consume)(library, options)


if __name__ == "__main__":
    main()
