"""Kafka Streams with exactly_once_v2: instances and the broker are killed in transactions, and no word is lost or counted twice."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Place

from tests.support import java
from tests.support.cache import KAFKA_STREAMS
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_transactions import READ_UNCOMMITTED, latest
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 2
WORDS = ("offset", "epoch", "leader", "marker", "log")
SOURCE = Path(__file__).parent / "WordCount.java"


class WordCount:
    """An instance of the application. Its state directory outlives it, as on a host."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir()
        classes = java.compiled(SOURCE, directory.parent, KAFKA_STREAMS)
        self._log = directory / "log"
        # RocksDB's library is unpacked into the folder for temporary files, where kill -9 leaves it.
        options = (*java.SHORT_LIVED, "-Xmx256M", f"-Djava.io.tmpdir={directory}")
        self._command = [*java.class_path(KAFKA_STREAMS, classes, options=options), "WordCount", *arguments, str(directory / "state")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> None:
        """Close it."""
        assert self._process is not None
        self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, self._log.read_text()

    def check(self) -> None:
        """It must still run."""
        assert self._process is not None and self._process.poll() is None, self._log.read_text()[-5_000:]


class Counts:
    """What a consumer reads of the target topic: all counts of each word, in order."""

    def __init__(self, server: Server, topic: str, isolation: str = "read_committed") -> None:
        self._consumer = Consumer({"bootstrap.servers": server.address, "group.id": "unused", "isolation.level": isolation,
                                   "enable.auto.commit": False, "reconnect.backoff.max.ms": 200})  # fmt: skip
        self._consumer.assign([Place(topic, partition, 0) for partition in range(PARTITIONS)])
        self.of: defaultdict[str, list[int]] = defaultdict(list)

    def poll(self) -> int:
        """Read what is there; the number of all counts so far."""
        messages: list[Message] = self._consumer.consume(500, 0.1)
        for message in messages:
            if message.error() is None:
                self.of[(message.key() or b"").decode()].append(int(message.value() or b""))
        return self.total

    @property
    def total(self) -> int:
        """The number of counts so far."""
        return sum(map(len, self.of.values()))

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def lines(server: Server, topic: str) -> Iterator[list[int]]:
    """Lines are written until the end of the context; then the list has the number of lines."""
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 5, "reconnect.backoff.max.ms": 200})
    ended = threading.Event()
    count: list[int] = []

    def write() -> None:
        for number in itertools.count():
            if ended.wait(0.01):
                count.append(number)
                return
            # To any partition: an explicit one is refused while a broker that starts does not show the topic yet.
            producer.produce(topic, " ".join(WORDS).encode())
            producer.poll(0)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield count
    finally:
        ended.set()
        writer.join()
    assert producer.flush(PATIENCE_S) == 0


def test_words_are_counted_exactly_once(start_broker: Callable[..., Server], name: str, tmp_path: Path) -> None:
    broker = start_broker()
    source, target = f"{name}-lines", f"{name}-counts"
    for topic in (source, target):
        create_topic(broker, topic, PARTITIONS)
    first, second = (WordCount(tmp_path / which, broker.address, name, source, target) for which in ("first", "second"))
    committed = Counts(broker, target)

    def is_in_transaction() -> bool:
        first.check()
        second.check()
        with RawConnection(broker.address) as connection:
            return any(latest(connection, target, partition=p) < latest(connection, target, isolation=READ_UNCOMMITTED, partition=p)
                       for p in range(PARTITIONS))

    def in_transaction() -> None:
        """Wait until an application has committed some more, and has a transaction open."""
        enough = committed.total + 20 * len(WORDS)
        until(lambda: committed.poll() >= enough, "more words are counted")
        until(is_in_transaction, "a transaction is open")

    try:
        with lines(broker, source) as written:
            first.start()
            second.start()
            for victims in ((first,), (broker,), (second,), (first, second), (first, broker)):
                in_transaction()
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
            in_transaction()
        expected = {word: list(range(1, written[0] + 1)) for word in WORDS}
        until(lambda: committed.poll() >= written[0] * len(WORDS), "all words are counted")
        assert committed.of == expected
        first.stop()
        second.stop()
        everything = Counts(broker, target, "read_uncommitted")
        until(lambda: everything.poll() > committed.total, "counts of killed instances, in transactions that were aborted")
        everything.close()
        assert committed.poll() == written[0] * len(WORDS)
    finally:
        first.kill()
        second.kill()
        committed.close()
