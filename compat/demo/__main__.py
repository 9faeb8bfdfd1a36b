"""`python -m compat.demo`: starts a broker, produces Debian's package index, and reads it back with every client."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from compat.demo import libraries, programs
from compat.demo.failure import DemoFailed
from compat.demo.packages import read_packages
from compat.demo.produce import produce
from compat.demo.source import Source, Take
from compat.demo.tally import Tally
from compat.progress import step
from compat.tables import plain_table
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.server import ServerFailed

Read = Callable[[Source, Take], None]

READERS: dict[str, Read] = {
    "kafka-python": libraries.read_with_kafka_python,
    "confluent-kafka": libraries.read_with_confluent_kafka,
    "aiokafka": libraries.read_with_aiokafka,
    "kcat": programs.read_with_kcat,
    **{name: programs.console_consumer_reader(release) for name, release in programs.RELEASES.items()},
    "Spark": programs.read_with_spark,
}
WITHOUT_GROUPS = {"Spark"}  # keeps its offsets outside of Kafka
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """The result of one reader. `problem` is None when it read what was sent."""

    reader: str
    way: str
    tally: Tally
    seconds: float
    problem: str | None

    def row(self) -> list[str]:
        return [self.reader, self.way, f"{self.tally.count:,}", f"{len(self.tally.keys):,}", self.tally.checksum, f"{self.seconds:.1f}",
                "yes" if self.problem is None else "NO"]


def main() -> int:
    """The exit status: 1 when a reader read something else, or nothing could be read."""
    options = _options()
    try:
        with _broker(options.bootstrap_server) as address:
            sent, outcomes = _demonstrate(address, options)
    except (DemoFailed, Missing, ServerFailed, KafkaError) as problem:
        print(f"The demonstration cannot continue: {problem}", file=sys.stderr)
        return 1
    return _report(sent, outcomes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat.demo", description=__doc__)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="use a running broker; default: start one on a temporary directory")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="lz4")
    parser.add_argument("--readers", metavar="NAME,...", type=lambda text: text.split(","), default=list(READERS),
                        help=f"of: {', '.join(READERS)}")
    parser.add_argument("--keep", action="store_true", help="do not delete the topic")
    options = parser.parse_args()
    if unknown := set(options.readers) - READERS.keys():
        parser.error(f"no such reader: {', '.join(sorted(unknown))}")
    return options


@contextmanager
def _broker(running: str | None) -> Iterator[str]:
    """The address of a broker."""
    if running is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="txbroker-demo-") as directory:
        broker = BrokerProcess(Path(directory))
        with step("start a broker") as progress:
            broker.start()
            progress.finish(f"{broker.address}, data in {broker.data}")
        try:
            yield broker.address
            with step("stop the broker") as progress:
                status = broker.stop()
                progress.finish(f"exit status {status}")
                if status != broker.stopped_status:
                    raise DemoFailed(f"the broker ended with {status}:\n{broker.log_tail()}")
        finally:
            broker.close()


def _demonstrate(address: str, options: argparse.Namespace) -> tuple[Tally, list[Outcome]]:
    """Send the index and read it with every reader."""
    with step("read apt's package index") as progress:
        packages = read_packages(progress.note)
        progress.finish(f"{len(packages):,} packages, {sum(len(stanza) for _, stanza in packages):,} bytes")
    topic = f"debian-packages-{time.time_ns() // 1_000_000}"
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        created = {"num_partitions": options.partitions, "replication_factor": 1}
        admin.create_topics({topic: created}, wait_for_metadata=True)
        with step(f"produce ({options.codec})", len(packages)) as progress:
            sent = produce(address, topic, packages, options.codec, progress.advance)
            progress.finish(f"{sent.count:,} records acknowledged in {len(sent.ends)} partitions")
        source = Source(address, topic, sent.ends)
        outcomes = [_read(name, reading, sent, admin) for name in options.readers for reading in _ways(name, source)]
        if not options.keep:
            _clean_up(admin, topic)
        return sent, outcomes
    finally:
        admin.close()


def _ways(name: str, source: Source) -> list[Source]:
    """Read by group and by offset, if the reader supports both."""
    by_group = replace(source, group=f"{source.topic}-{name.replace(' ', '-').lower()}")
    return [source] if name in WITHOUT_GROUPS else [by_group, source]


def _read(name: str, source: Source, sent: Tally, admin: KafkaAdminClient) -> Outcome:
    way = "group" if source.group else "offsets"
    tally = Tally()
    with step(f"{name}, by {way}", source.count) as progress:

        def take(partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
            tally.add(partition, offset, key, value)
            progress.advance()

        try:
            READERS[name](source, take)
            problem = sent.difference(tally) or _difference_of_commits(source, admin)
        except Exception as failure:  # clients raise many kinds of errors; each is a failed row
            problem = f"{type(failure).__name__}: {failure}"
        progress.finish(f"{tally.count:,} records, " + ("agrees" if problem is None else f"DISAGREES: {problem}"))
        return Outcome(name, way, tally, progress.seconds, problem)


def _difference_of_commits(source: Source, admin: KafkaAdminClient) -> str | None:
    """The difference between the group's committed offsets and the ends of the partitions; None if there is none."""
    if source.group is None:
        return None
    (found,) = admin.list_group_offsets(source.group).values()
    committed = {tp.partition: entry.offset for tp, entry in found.items() if tp.topic == source.topic}
    return None if committed == dict(source.ends) else f"committed are {committed}, the ends are {dict(source.ends)}"


def _clean_up(admin: KafkaAdminClient, topic: str) -> None:
    """Remove topic and groups from a broker that was not started here."""
    groups = [group["group_id"] for group in admin.list_groups() if group["group_id"].startswith(topic)]
    deadline = time.monotonic() + PATIENCE_S
    while groups and time.monotonic() < deadline:
        groups = [group for group, outcome in admin.delete_groups(groups).items() if outcome != "OK"]
        time.sleep(0.2 if groups else 0)
    admin.delete_topics([topic])


def _report(sent: Tally, outcomes: list[Outcome]) -> int:
    heading = ["reader", "by", "records", "keys", "checksum", "seconds", "agrees"]
    rows = [["(sent)", "", f"{sent.count:,}", f"{len(sent.keys):,}", sent.checksum, "", ""], *(outcome.row() for outcome in outcomes)]
    print()
    print(plain_table(heading, rows))
    wrong = [outcome for outcome in outcomes if outcome.problem is not None]
    for outcome in wrong:
        print(f"\n{outcome.reader}, by {outcome.way}: {outcome.problem}")
    print()
    print(f"{len(wrong)} of {len(outcomes)} readings disagree" if wrong else "Every reading agrees: each record once, its bytes and its "
          "order in the partition, and the offsets that groups committed.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
