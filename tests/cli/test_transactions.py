"""`txbroker transactions`, `produce --transactional-id`, and what the doctor says about open transactions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.support import raw_transactions as raw
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import WARNING, Findings
from txbroker.cli.doctor.transaction_checks import ISOLATION_VERSION, READ_COMMITTED, Held, Known, check, explain
from txbroker.cli.results import Results
from txbroker.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from txbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from txbroker.wire.messages.metadata import MetadataResponsePartition

MINUTE_MS = 60_000


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as made:
        yield made


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    create_topic(broker, name)
    return name


def rows(server: Server, *words: str, status: int = 0) -> list[dict[str, Any]]:
    output, _ = run("transactions", "--bootstrap-server", server.address, "--json", *words, status=status)
    return [json.loads(line) for line in output.splitlines()]


def hanging(connection: RawConnection, topic: str) -> raw.TransactionalProducer:
    """A transaction that its coordinator has ended, while the partition has it as open: its batch came after the markers."""
    producer = raw.initialize(connection, f"{topic}-hanging")
    raw.write(connection, producer, topic, 0, b"one")
    assert raw.end(connection, producer, commit=False) == 0
    until(lambda: raw.producers(connection, topic)[producer.id].current_txn_start_offset == -1, "the marker")
    assert raw.produce(connection, producer, topic, 1, b"late") == 0
    return producer


@pytest.mark.process
def test_listing_and_describing(broker: Server, connection: RawConnection, topic: str) -> None:
    producer = raw.initialize(connection, topic)
    raw.write(connection, producer, topic, 0, b"one", b"two")
    (listed,) = [row for row in rows(broker, "list") if row["transactional_id"] == topic]
    assert (listed["producer_id"], listed["state"]) == (producer.id, "Ongoing")
    (described,) = rows(broker, "describe", "--transactional-id", topic)
    assert described["partitions"] == [f"{topic}-0"] and described["duration_ms"] >= 0
    assert (described["coordinator"], described["producer_epoch"]) == (listed["coordinator"], producer.epoch)
    assert described["timeout_ms"] == 60_000
    (state,) = rows(broker, "describe-producers", "--topic", topic, "--partition", "0")
    assert (state["producer_id"], state["last_sequence"], state["start_offset"]) == (producer.id, 1, 0)
    plain = run("transactions", "--bootstrap-server", broker.address, "describe-producers", "--topic", topic, "--partition", "0")[0]
    assert plain.split()[:2] == ["ProducerId", "ProducerEpoch"] and plain.split()[8] == "None"  # no marker: no coordinator epoch
    assert rows(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []
    assert rows(broker, "list", "--transactional-id-pattern", "x.*") == []
    assert raw.end(connection, producer, commit=True) == 0


@pytest.mark.process
def test_finding_and_aborting_a_hanging_transaction(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker({"transaction.partition.verification.enable": "false"})
    create_topic(broker, name)
    with RawConnection(broker.address) as connection:
        producer = hanging(connection, name)
        (found,) = rows(broker, "find-hanging", "--topic", name, "--max-transaction-timeout", "0")
        assert (found["producer_id"], found["partition"], found["start_offset"]) == (producer.id, 0, 2)
        assert rows(broker, "find-hanging", "--topic", name, "--max-transaction-timeout", "10000000") == []
        doctored = run("doctor", "--bootstrap-server", broker.address, "--json", "--topic", name)[0].splitlines()
        (finding,) = [found for line in doctored if (found := json.loads(line))["check"].startswith("read_committed")]
        assert "hangs" in finding["found"] and finding["advice"].endswith(f"--topic {name} --partition 0 --start-offset 2`")
        partition = "--topic", name, "--partition", "0"
        complaint = run("transactions", "--bootstrap-server", broker.address, "abort", *partition, "--start-offset", "0", status=1)[1]
        assert "no open transaction" in complaint and "begin at 2" in complaint
        epochs = "--producer-epoch", "0", "--coordinator-epoch", "0"
        unknown = "abort", *partition, "--producer-id", "333", *epochs
        complaint = run("transactions", "--bootstrap-server", broker.address, *unknown, status=1)[1]
        assert "producer 333 has no open transaction" in complaint
        assert rows(broker, "abort", *partition, "--start-offset", "2") == [{"topic": name, "partition": 0, "producer_id": producer.id}]
        assert raw.latest(connection, name) == raw.latest(connection, name, isolation=raw.READ_UNCOMMITTED) == 4
        assert rows(broker, "find-hanging", "--topic", name, "--max-transaction-timeout", "0") == []


@pytest.mark.process
@pytest.mark.parametrize("flags", [(), ("--transaction-duration-ms", "1")], ids=["one transaction", "several"])
def test_lines_in_transactions(broker: Server, connection: RawConnection, topic: str, flags: tuple[str, ...]) -> None:
    sent = "".join(f"{number}\n" for number in range(300))
    server = "--bootstrap-server", broker.address
    run("produce", *server, "--topic", topic, "--transactional-id", topic, *flags, stdin=sent)
    consume = "consume", *server, "--topic", topic, "--from-beginning", "--isolation-level", "read_committed"
    until(lambda: raw.latest(connection, topic) == raw.latest(connection, topic, isolation=raw.READ_UNCOMMITTED), "the markers")
    assert run(*consume, "--max-messages", "300")[0] == sent
    assert (raw.latest(connection, topic) > 301) == bool(flags)


@pytest.mark.process
def test_lines_that_are_refused_are_aborted(broker: Server, connection: RawConnection, topic: str) -> None:
    server = "--bootstrap-server", broker.address
    large = "x" * 2_000_000
    produced = "produce", *server, "--topic", topic, "--transactional-id", topic, "--producer-property", "max.request.size=10000000"
    run(*produced, stdin=f"one\n{large}\n", status=1)
    ended = ("CompleteAbort", "Empty")
    until(lambda: rows(broker, "describe", "--transactional-id", topic)[0]["state"] in ended, "the transaction is aborted")


@contextmanager
def one_line(broker: Server, connection: RawConnection, topic: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """`txbroker produce` with a transaction open, which has one line and waits for the next."""
    words = "produce", "--bootstrap-server", broker.address, "--topic", topic, "--transactional-id", topic, *flags
    pipes: dict[str, int] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command(*words), **pipes, text=True, env=ENVIRONMENT) as process:  # type: ignore[call-overload]
        assert process.stdin is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        until(lambda: raw.latest(connection, topic, isolation=raw.READ_UNCOMMITTED), "the line is written")
        yield process


@pytest.mark.process
@pytest.mark.parametrize("more", ["", "two\n"])
def test_a_producer_that_is_fenced(broker: Server, connection: RawConnection, topic: str, more: str) -> None:
    with one_line(broker, connection, topic) as process:
        raw.initialize(connection, topic)
        complaint = process.communicate(more, PATIENCE_S)[1]
    assert process.returncode == 1
    assert f"another producer with --transactional-id {topic} has started" in complaint and "no line is committed" in complaint


@pytest.mark.process
@pytest.mark.parametrize("more", ["", "two\n"])
def test_a_transaction_that_times_out(start_broker: Callable[..., Server], name: str, more: str) -> None:
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    create_topic(broker, name)
    with (
        RawConnection(broker.address) as connection,
        one_line(broker, connection, name, "--command-property", "transaction.timeout.ms=300") as process,
    ):
        until(lambda: rows(broker, "describe", "--transactional-id", name)[0]["state"] == "CompleteAbort", "the transaction is aborted")
        complaint = process.communicate(more, PATIENCE_S)[1]
    assert process.returncode == 1
    assert f"the transaction of {name} was open for longer than transaction.timeout.ms (300), and was aborted" in complaint


@pytest.mark.process
def test_wrong_usage(broker: Server) -> None:
    server = "transactions", "--bootstrap-server", broker.address
    partition = "--topic", "t", "--partition", "0"
    assert "--topic or --broker-id" in run(*server, "find-hanging", status=2)[1]
    assert "needs --topic" in run(*server, "find-hanging", "--broker-id", "1", "--partition", "0", status=2)[1]
    assert "--start-offset, or --producer-id" in run(*server, "abort", *partition, status=2)[1]
    assert "needs --producer-epoch" in run(*server, "abort", *partition, "--producer-id", "1", status=2)[1]
    assert "is not a regular expression" in run(*server, "list", "--transactional-id-pattern", "(", status=2)[1]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(*server, "find-hanging", "--topic", "no-such-topic", status=1)[1]
    assert "there is no transactional id" in run(*server, "describe", "--transactional-id", "no-such-id", status=1)[1]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(*server, "describe-producers", "--topic", "no-such-topic", "--partition", "0", status=1)[1]
    assert "there is no broker 99" in run(*server, "find-hanging", "--broker-id", "99", status=1)[1]
    produce = "produce", "--bootstrap-server", broker.address, "--topic", "t"
    assert "needs --transactional-id" in run(*produce, "--transaction-duration-ms", "5", status=2)[1]
    assert "is empty" in run(*produce, "--transactional-id", "", status=2)[1]
    produce = *produce, "--transactional-id", "t"
    assert "--request-required-acks all, not 1" in run(*produce, "--request-required-acks", "1", status=2)[1]
    assert "acks=1" in run(*produce, "--command-property", "acks=1", status=2)[1]
    assert "of 1 or more" in run(*produce, "--message-send-max-retries", "0", status=2)[1]
    for timeout in ("0", "-1", "soon", str(2**31)):
        assert "whole number from 1" in run(*produce, "--command-property", f"transaction.timeout.ms={timeout}", status=2)[1]
    huge = run(*produce, "--command-property", "transaction.timeout.ms=2147483647", status=2)[1]
    assert "transactional id t cannot be used" in huge and "(INVALID_TRANSACTION_TIMEOUT); lower transaction.timeout.ms" in huge
    assert "use --transactional-id" in run(*produce, "--producer-property", "transactional.id=x", status=2)[1]


KNOWN = Known(1, "orders-1", "Ongoing", 1_000_000, 2 * MINUTE_MS, frozenset({0}))


@pytest.mark.parametrize(
    ("held", "known", "words", "advice"),
    [
        (Held(0, 5, 9, 7), KNOWN, "open since 1 min; consumers do not get partition 0 from offset 5 on (4 offsets)", "in 1 min"),
        (Held(0, 5, 9, 7), KNOWN._replace(timeout_ms=10), "orders-1 is open since 1 min", "aborts it soon"),
        (Held(0, 5, 9, 7), KNOWN._replace(state="PrepareCommit"), "its markers are being written", "broker 1"),
        (Held(3, 5, 9, 7), KNOWN, "producer 7 hangs", "abort --topic t --partition 3 --start-offset 5"),
        (Held(0, 5, 9, 8), KNOWN, "producer 8 hangs", "abort --topic t --partition 0 --start-offset 5"),
        (Held(0, 5, 9, None), KNOWN, "not on all in-sync replicas", "find-hanging"),
    ],
)
def test_the_reasons_of_the_doctor(held: Held, known: Known, words: str, advice: str) -> None:
    (finding,) = explain("t", [held], {7: known}, 1_000_000 + MINUTE_MS)
    assert finding.outcome == "warning"
    assert words in finding.found and advice in finding.advice


class BusyLeader:
    """Partition 0 of a topic. Each request finds more records. `open_records`: of a transaction that has just begun, if there is one."""

    def __init__(self, open_records: int, *, stable_moves: bool = True) -> None:
        self.end = self.stable = 100
        self.open_records = open_records
        self.stable_moves = stable_moves

    def version_of(self, request: type) -> int | None:
        return ISOLATION_VERSION if request is ListOffsetsRequest else 0

    def call(self, request: Any, *, version_max: int | None = None) -> Any:
        self.end += 5
        if self.stable_moves:
            self.stable = self.end - self.open_records
        if isinstance(request, DescribeProducersRequest):
            return DescribeProducersResponse(throttle_time_ms=0, topics=[])
        offset = self.stable if request.isolation_level == READ_COMMITTED else self.end
        partition = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


@pytest.mark.parametrize(
    ("leader", "warnings"),
    [(BusyLeader(0), 0), (BusyLeader(7), 0), (BusyLeader(0, stable_moves=False), 1)],
    ids=["no transactions", "short transactions", "a stable offset that does not move"],
)
def test_the_doctor_warns_of_a_stable_offset_that_does_not_move(leader: Any, warnings: int) -> None:
    findings = Findings(Results(as_json=True, width=None))
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
    )
    check(findings, Cluster(None, {}, {1: leader}), "t", [partition], 0)
    assert findings.counts[WARNING] == warnings
