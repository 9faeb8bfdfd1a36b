"""`txbroker doctor` without a topic and a group: what is wrong anywhere in a cluster."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

from tests.cli.commands import fill, on_terminal, run
from tests.cli.test_doctor import bad, create, doctor, one
from tests.support.cluster import Cluster
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.cli.doctor.group_lag import Sample, judge

JOIN_MS = 60_000  # at most; a poll ends as soon as there are records
SOON = ("--interval", "1")


def test_a_broker_that_does_not_run_is_named(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster()
    server = cluster.brokers[1]
    run("topics", "--bootstrap-server", server.address, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "3",
        "--config", "min.insync.replicas=3")  # fmt: skip
    run("topics", "--bootstrap-server", server.address, "--create", "--topic", f"{name}-2", "--replica-assignment", "2")
    cluster.until_in_sync(name)
    assert bad(doctor(server, *SOON, status=0)) == []
    cluster.brokers[2].kill()
    cluster.until_registered()
    findings = doctor(server, *SOON, status=1)
    assert one(findings, "brokers")["found"].startswith("broker 2 is not registered, but has 4 replicas: ")
    leaderless, behind = bad(findings, "partitions")
    assert leaderless["found"] == f"no leader, so that producers and consumers wait: 1 partition in 1 topic: {name}-2 (1)"
    assert leaderless["advice"] == f"`txbroker doctor --topic {name}-2` says why"
    assert behind["found"] == f"replicas are out of sync: 3 partitions in 1 topic: {name} (3)"
    assert one(findings, "acks=all")["outcome"] == "failed"
    assert {row["outcome"] for row in findings if row["check"] == "leaders"} == {"ok"}


def test_uncleanable_partitions_are_counted(start_broker: Callable[..., Server], name: str) -> None:
    own = start_broker({"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "3600000"})
    compacted = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0")
    for topic in (name, f"{name}-2", f"{name}-3"):
        create(own, topic, *compacted)
        run("produce", "--bootstrap-server", own.address, "--topic", topic, "--reader-property", "parse.key=true",
            stdin="a\t1\na\t2\n")  # fmt: skip
    assert own.stop() == own.stopped_status
    for topic in (name, f"{name}-2"):
        log = own.data / f"{topic}-0" / f"{0:020}.log"
        content = bytearray(log.read_bytes())
        content[70] ^= 0xFF
        log.write_bytes(content)
    own.start()
    assert one(doctor(own, *SOON, status=0), "compaction")["outcome"] == "ok", "no pass has run"
    for topic in (name, f"{name}-2"):
        run("log-cleaner", "--bootstrap-server", own.address, "--compact-now", topic, "--roll", "--wait", status=1)
    findings = doctor(own, *SOON, status=1)
    (finding,) = bad(findings)
    assert (finding["outcome"], finding["check"]) == ("failed", "compaction")
    counted = f"uncleanable, so that their logs grow: 2 partitions in 2 topics: {name} (1), {name}-2 (1); {name}-0: "
    assert finding["found"].startswith(counted)


@contextlib.contextmanager
def members(broker: Server, topic: str, *groups: str) -> Iterator[list[KafkaConsumer]]:
    """A member of each group that has the only partition, but commits only what the test does."""
    consumers = [
        KafkaConsumer(topic, group_id=group, bootstrap_servers=broker.address, enable_auto_commit=False, auto_offset_reset="earliest")
        for group in groups
    ]

    def joined() -> bool:
        """All are polled together: one whose session timed out while another one joined joins again.

        kafka-python's member never goes on if the time of a poll ends between its SyncGroup and its assignment: this one is long.
        """
        for consumer in consumers:
            consumer.poll(100 if consumer.assignment() else JOIN_MS)
        return all(consumer.assignment() for consumer in consumers)

    try:
        until(joined, "each member has the partition")
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def commit(consumer: KafkaConsumer, topic: str, offset: int) -> None:
    """Commit an offset. A member whose session timed out, as on a machine that is loaded, joins again first."""

    def committed() -> bool:
        try:
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, timeout_ms=PATIENCE_S * 1000)
        except CommitFailedError:
            consumer.poll(100)
            return False
        return True

    until(committed, f"offset {offset} is committed")


def with_one_second(text: str) -> str:
    """The text with the time between the two samples as one second: it may be a little less, and more on a loaded machine."""
    found = re.fullmatch(r"(.* in) (?:[1-9]\d* s|9\d\d ms)", text)
    assert found is not None, text
    return f"{found[1]} 1 s"


def test_groups_that_do_not_catch_up_are_named(start_broker: Callable[..., Server], name: str) -> None:
    own = start_broker({"group.initial.rebalance.delay.ms": "0"})
    create(own, name, "retention.ms=-1")
    fill(own, name, {0: 5000})
    run("consume", "--bootstrap-server", own.address, "--topic", name, "--group", "stopped", "--from-beginning", "--max-messages", "1")
    with members(own, name, "stalled", "done") as (stalled, done):
        commit(stalled, name, 10)
        commit(done, name, 5000)
        findings = doctor(own, *SOON, status=1)
        (finding,) = bad(findings)
        assert finding["outcome"] == "failed"
        assert with_one_second(finding["found"]) == (
            "2 groups of 3 do not catch up; records behind: stopped (4,999): no member reads, stalled (4,990): it committed nothing in 1 s"
        )
        (finding,) = bad(doctor(own, "--group", "stalled", *SOON, status=0))
        assert (finding["outcome"], finding["check"]) == ("warning", "lag of group stalled")
        assert with_one_second(finding["found"]) == f"4,990 records behind, most in {name}-0 (4,990); it committed nothing in 1 s"
        assert bad(doctor(own, "--group", "done", *SOON, status=0)) == []


def test_a_group_that_is_slower_than_the_producers_falls_behind(start_broker: Callable[..., Server], name: str) -> None:
    own = start_broker({"group.initial.rebalance.delay.ms": "0"})
    create(own, name, "retention.ms=-1")
    fill(own, name, {0: 40_000})
    stop = threading.Event()
    with members(own, name, "slow") as (slow,), KafkaProducer(bootstrap_servers=own.address) as producer:
        commit(slow, name, 1)

        def work() -> None:
            for offset in range(2, 40_000):
                if stop.is_set():
                    return
                producer.send(name, b"x")
                producer.send(name, b"x")
                producer.flush()
                commit(slow, name, offset)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            found = one(doctor(own, *SOON, status=1), "groups")["found"]
            of_group = one(doctor(own, "--group", "slow", *SOON, status=0), "lag of group slow")
        finally:
            stop.set()
            worker.join()
    assert found.startswith("1 group of 1 do not catch up; records behind: slow (")
    assert re.search(r": it falls behind: in (?:[1-9]\d* s|9\d\d ms) ", found), found
    assert of_group["outcome"] == "warning"
    assert "; it falls behind: in " in of_group["found"]


P = ("t", 0)


def sample(at_s: float, committed: int, end: int) -> Sample:
    return Sample(at_s, {P: committed}, {P: end})


@pytest.mark.parametrize(
    ("first", "second", "sentence", "sick", "slow"),
    [
        (sample(0, 100, 100), None, "", False, False),
        (sample(0, 0, 1000), sample(10, 500, 1000), "at this rate it catches up in 10 s", False, False),
        (sample(0, 0, 100_000), sample(10, 1000, 100_000), "at this rate it catches up in 16 min", False, True),
        (sample(0, 0, 100_000), sample(10, 1000, 101_000), "it falls behind: in 10 s 1,000 records arrived and it read 1,000", True, False),
        (sample(0, 0, 100), sample(10, 0, 100), "it committed nothing in 10 s", True, False),
        (sample(0, 990, 1000), sample(10, 1500, 2000), "it keeps up", False, False),
    ],
)
def test_verdicts_on_a_lag(first: Sample, second: Sample | None, sentence: str, sick: bool, slow: bool) -> None:
    found = judge("Stable", first, second)
    assert (found.sentence, found.sick, found.slow) == (sentence, sick, slow)
    assert bool(found.advice) == (sick or slow)


def test_many_topics_in_requests_of_limited_size(start_broker: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is about a few of the topics and groups, and all are found."""
    own = start_broker()
    for topic in range(7):
        run("topics", "--bootstrap-server", own.address, "--create", "--topic", f"t{topic}", "--partitions", "5")
        run("produce", "--bootstrap-server", own.address, "--topic", f"t{topic}", stdin="1\n2\n")
        run("consume", "--bootstrap-server", own.address, "--topic", f"t{topic}", "--group", f"g{topic}", "--from-beginning",
            "--max-messages", "1")  # fmt: skip
    for module, limit, size in (("asking", "PARTITIONS_AT_ONCE", 3), ("sweep", "PARTITIONS_AT_ONCE", 3), ("sweep", "TOPICS_AT_ONCE", 2),
                                ("group_sweep", "GROUPS_AT_ONCE", 2)):  # fmt: skip
        monkeypatch.setattr(f"txbroker.cli.doctor.{module}.{limit}", size)
    findings = doctor(own, status=1)
    assert one(findings, "partitions")["found"].startswith("85 partitions in 8 topics")
    assert one(findings, "leaders")["found"] == "they serve all 85 partitions"
    assert one(findings, "groups")["found"].startswith("7 groups of 7 do not catch up; ")


def test_a_late_transaction_is_named(start_broker: Callable[..., Server], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.cli.doctor.transaction_checks.LATE_MS", 0)
    own = start_broker()
    create(own, name)
    producer = KafkaProducer(bootstrap_servers=own.address, transactional_id="payments", transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"x").get(10)
    (finding,) = bad(doctor(own, *SOON, status=1))
    assert finding["check"] == f"read_committed on {name}"
    assert "the transaction of payments is open since" in finding["found"]
    producer.abort_transaction()
    producer.close()
    assert one(doctor(own, *SOON, status=0), "transactions")["outcome"] == "ok"


def test_the_text_on_a_terminal(start_broker: Callable[..., Server]) -> None:
    shown = on_terminal("doctor", "--bootstrap-server", start_broker().address, *SOON)
    assert "ok       brokers: all 1 broker that should run are registered" in shown
