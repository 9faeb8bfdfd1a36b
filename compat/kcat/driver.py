"""The driver of kcat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from compat.adapter import COOPERATIVE, EAGER, HEARTBEAT_MS, SENDING_S, Client, Consumer, Producer, Unsupported, in_flight, until
from compat.driving import drive
from compat.kcat.processes import FORMAT, KEY_END, RECORD_END, KcatConsumer, parsed, release, settings
from compat.kcat.secured import exchange
from compat.samples import ANY_TIME, Record, sample_records

_ASSIGNORS = {EAGER: "roundrobin", COOPERATIVE: "cooperative-sticky"}


class Kcat(Client):
    """One process per step. A run sends with one set of text headers and its own timestamps, and empty keys and values become null.

    Topics are created by use only and have one partition. The members of a group share several topics, TOPIC.0, TOPIC.1, ...
    """

    name = "kcat"
    version = release()
    partitions = 1

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._parts: dict[str, int] = {}

    def records(self, count: int, partitions: int | None = None) -> list[Record]:
        """Sample records as kcat can send them."""
        headers = (("trace", b"0123"), ("again", b"1"), ("again", b"2"))
        samples = sample_records(count, partitions or self.partitions)
        return [r._replace(timestamp=ANY_TIME, key=r.key or None, value=r.value or None, headers=headers) for r in samples]

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("kcat does not create topics")

    def create_shared(self, topic: str, partitions: int) -> None:
        self._parts[topic] = partitions
        self._use(topic)

    def _use(self, topic: str) -> None:
        """Request the topic's metadata, which creates it."""
        until(lambda: all(self._leaders(part) == 1 for part in self._topics_of(topic)), "requested topics")

    def _topics_of(self, topic: str) -> list[str]:
        return [self._place(topic, partition)[0] for partition in range(self._parts.get(topic, 1))]

    def _place(self, topic: str, partition: int) -> tuple[str, int]:
        return (f"{topic}.{partition}", 0) if topic in self._parts else (topic, partition)

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in json.loads(self._run("-L", "-J"))["topics"]}

    def partitions_with_leaders(self, topic: str) -> int:
        return sum(self._leaders(part) for part in self._topics_of(topic))

    def _leaders(self, topic: str) -> int:
        (found,) = json.loads(self._run("-L", "-J", "-t", topic))["topics"]
        return sum(partition["leader"] >= 0 for partition in found["partitions"])

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        text = b"".join((r.key or b"") + KEY_END + (r.value or b"") + RECORD_END for r in records)
        headers = [option for name, value in records[0].headers for option in ("-H", f"{name}={(value or b'').decode()}")]
        self._run("-P", "-E", "-t", topic, "-p", "0", "-z", codec, "-D", RECORD_END.decode(), "-K", KEY_END.decode(), "-Z", *headers,
                  *settings({"acks": acks, "batch.num.messages": 50, "enable.idempotence": str(idempotent).lower(),
                             "max.in.flight": in_flight(idempotent)}), stdin=text)

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        return _Producer(self, self._topics_of(topic), idempotent)

    def consumer(self, topic: str, *, max_wait_ms: int = 500, committed: bool = False) -> Consumer:
        self._use(topic)
        consumer = KcatConsumer(self.address, ["-C", "-t", topic, "-o", "beginning"], [topic], {"fetch.wait.max.ms": max_wait_ms})
        consumer.start()
        return consumer

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        self._use(topic)
        topics = self._topics_of(topic)
        static = {} if instance is None else {"group.instance.id": instance}
        member = KcatConsumer(self.address, ["-G", group], topics, {
            "auto.offset.reset": "earliest", "heartbeat.interval.ms": HEARTBEAT_MS, "auto.commit.interval.ms": 100,
            "partition.assignment.strategy": _ASSIGNORS[protocol], **static})
        member.start()
        return member

    def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        return parsed(self._run("-C", "-t", topic, "-o", "beginning", "-e", "-X", "check.crcs=true", "-f", FORMAT))[0]

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        return parsed(self._run("-f", FORMAT, "-c", str(count), "-X", "auto.offset.reset=earliest", "-G", group, topic))[0]

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        first, last = (self._offset(topic, partition, special) for special in (-2, -1))
        return first, last

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        return self._offset(topic, partition, timestamp)

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        place, number = self._place(topic, partition)
        return int(self._run("-Q", "-t", f"{place}:{number}:{timestamp}").split()[-1])

    def _run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        command = ["kcat", "-q", "-b", self.address, *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, timeout=SENDING_S, check=False)
        assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.decode(errors='replace')}"
        return ended.stdout


class _Producer(Producer):
    """Runs of kcat: it reads its input to the end before it sends, and exits with 0 when all records are acknowledged."""

    def __init__(self, client: Kcat, topics: Sequence[str], idempotent: bool) -> None:
        self._client = client
        self._topics = topics
        self._idempotent = idempotent

    def send(self, records: Sequence[Record]) -> None:
        for partition, topic in enumerate(self._topics):
            if own := [record for record in records if record.partition == partition]:
                self._client.produce(topic, own, idempotent=self._idempotent)

    def close(self) -> None:
        """Every run has ended."""


if __name__ == "__main__":
    drive(Kcat, exchange)
