"""The perf tools on a real broker: their counts match the stored records, also after a restart of the broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.cli.commands import ENVIRONMENT, command, run
from tests.support import java
from tests.support import raw_transactions as raw
from tests.support.raw import RawConnection
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.client import producer_transactions

pytestmark = pytest.mark.process


def create(server: Server, topic: str, partitions: int = 1, *config: str) -> None:
    flags = [flag for text in config for flag in ("--config", text)]
    run("topics", "--bootstrap-server", server.address, "--create", "--topic", topic, "--partitions", str(partitions), *flags)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def everything(server: Server, topic: str) -> list[Any]:
    """All records of a topic, read by another client."""
    with KafkaConsumer(bootstrap_servers=[server.address], auto_offset_reset="earliest", consumer_timeout_ms=1000) as consumer:
        places = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        left = sum(consumer.end_offsets(places).values())
        found = []
        while left:
            polled = [record for records in consumer.poll(1000).values() for record in records]
            found += polled
            left -= len(polled)
        return found


def test_sent_records_are_stored_and_counted(broker: Server, name: str) -> None:
    create(broker, name, 3)
    flags = ("--bootstrap-server", broker.address, "--topic", name)
    output, complaint = run("perf-produce", *flags, "--num-records", "20000", "--payload-monotonic", "--throughput", "-1")
    assert complaint == ""
    number = r"[\d.]+"
    assert re.fullmatch(
        rf"20000 records sent, {number} records/sec \({number} MB/sec\), {number} ms avg latency, {number} ms max latency, "
        r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n",
        output,
    )
    found = everything(broker, name)
    assert sorted(int(record.value) for record in found) == list(range(20_000)), "each once"
    for partition in range(3):
        values = [int(record.value) for record in found if record.partition == partition]
        assert values, "every partition has records"
        assert values == sorted(values), "in order"
    size = sum(len(record.value) for record in found)
    output, complaint = run("perf-consume", *flags, "--num-records", "20000")
    assert complaint == ""
    header, line = output.splitlines()
    assert header.split(", ")[-4:] == ["rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec"]
    cells = line.split(", ")
    assert len(cells) == len(header.split(", "))
    assert (float(cells[2]), int(cells[4]), int(cells[6])) == (round(size / 1024 / 1024, 4), 20_000, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: Server, name: str, codec: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("short\nsomething longer that repeats repeats repeats\n")
    flags = ("--bootstrap-server", broker.address, "--topic", name)
    create(broker, name)
    properties = ("--producer-props", f"compression.type={codec}", "linger.ms=0", "--producer-props", "acks=1")
    output, complaint = run(
        "perf-produce", *flags, "--num-records", "5000", "--payload-file", str(payloads), *properties, "--json", "--print-metrics"
    )
    assert complaint.endswith("Number of records read: 2\n")
    total, metrics = rows(output)
    assert (total["kind"], total["records"], metrics["retries"]) == ("total", 5000, 0)
    found = everything(broker, name)
    assert {record.value for record in found} == {b"short", b"something longer that repeats repeats repeats"}
    assert (len(found), sum(len(record.value) for record in found)) == (5000, total["bytes"])
    (read,) = rows(run("perf-consume", *flags, "--messages", "5000", "--json")[0])
    assert (read["records"], read["bytes"]) == (5000, total["bytes"])


def test_throughput_and_reports(broker: Server, name: str) -> None:
    create(broker, name, 2)
    flags = ("--bootstrap-server", broker.address, "--topic", name, "--num-records", "1500", "--record-size", "50", "--throughput", "1000")
    output, _ = run("perf-produce", *flags, "--reporting-interval", "300", "--warmup-records", "500", "--json")
    *intervals, total, steady = rows(output)
    assert len(intervals) >= 2
    assert all(interval["kind"] == "interval" for interval in intervals)
    assert (total["records"], total["bytes"], steady["kind"]) == (1500, 75_000, "steady")
    assert 0 < steady["records"] <= 1000
    assert total["records_per_s"] < 1010, "not faster than --throughput"
    assert total["latency_p50_ms"] <= total["latency_p99_ms"] <= total["latency_max_ms"]


def test_a_group_continues_where_it_stopped(broker: Server, name: str) -> None:
    create(broker, name, 2)
    flags = ("--bootstrap-server", broker.address, "--topic", name)
    sizes = ("--record-size", "100", "--command-property", "batch.size=1000")
    run("perf-produce", *flags, "--num-records", "3000", *sizes)
    member = ("perf-consume", *flags, "--group", name, "--json", "--fetch-size", "5000")
    (first,) = rows(run(*member, "--num-records", "1000")[0])
    assert 1000 <= first["records"] < 3000
    (second,) = rows(run(*member, "--num-records", str(3000 - first["records"]), "--timeout", "60000")[0])
    assert first["records"] + second["records"] == 3000
    output, complaint = run(*member, "--num-records", "1", "--timeout", "1500")
    (third,) = rows(output)
    assert third["records"] == 0
    assert complaint.startswith("WARNING: Exiting before consuming the expected number of records: timeout (1500 ms) exceeded.")


def test_detailed_stats(broker: Server, name: str) -> None:
    create(broker, name)
    flags = ("--bootstrap-server", broker.address, "--topic", name)
    detailed = ("--num-records", "1", "--timeout", "700", "--show-detailed-stats", "--reporting-interval", "200", "--from-latest")
    output, _ = run("perf-consume", *flags, *detailed)
    header, *lines = output.splitlines()
    assert header.startswith("time, threadId, data.consumed.in.MB, ")
    assert len(lines) >= 2
    assert all(line.split(", ")[1:6] == ["0", "0.0000", "0.0000", "0", "0.0000"] for line in lines)


def committed(server: Server, topic: str, count: int) -> list[int]:
    """The numbers in so many records of committed transactions."""
    flags = ("--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--max-messages", str(count))
    return sorted(map(int, run("consume", "--bootstrap-server", server.address, *flags)[0].split()))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_transactions(broker: Server, name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With v1 the producer adds the partitions, with v2 (KIP-890) each transaction has an epoch of its own."""
    if version == "v1":
        monkeypatch.setattr(producer_transactions, "V2_LEVEL", 3)
    create(broker, name, 3)
    flags = ("--bootstrap-server", broker.address, "--topic", name, "--num-records", "3000", "--payload-monotonic")
    sizes = ("--throughput", "10000", "--command-property", "batch.size=500", "linger.ms=0", "--print-metrics", "--json")
    output, complaint = run("perf-produce", *flags, *sizes, "--transactional-id", name, "--transaction-duration-ms", "20")
    assert complaint == ""
    *_, total, metrics = rows(output)
    assert total["records"] == 3000 and metrics["transactions"] > 1
    assert committed(broker, name, 3000) == list(range(3000))
    with RawConnection(broker.address) as connection:
        ends = [raw.latest(connection, name, partition=partition) for partition in range(3)]
    assert 3000 + metrics["transactions"] <= sum(ends) <= 3000 + 3 * metrics["transactions"], "each transaction has its markers"


def test_a_transactional_id_of_its_own(broker: Server, name: str) -> None:
    create(broker, name)
    flags = ("--bootstrap-server", broker.address, "--topic", name, "--num-records", "10", "--record-size", "10", "--print-metrics")
    assert "transactions : 1\n" in run("perf-produce", *flags, "--transaction-duration-ms", "60000")[0]
    listed = run("transactions", "--bootstrap-server", broker.address, "--json", "list")[0]
    assert any(row["transactional_id"].startswith("performance-producer-") for row in rows(listed))


def test_a_fenced_producer(broker: Server, name: str) -> None:
    """Its open transaction is aborted by the producer that comes after it."""
    create(broker, name)
    flags = ("--bootstrap-server", broker.address, "--topic", name, "--record-size", "10", "--transactional-id", name)
    slow = ("--num-records", "1000000", "--throughput", "500", "--transaction-duration-ms", "600000", "--reporting-interval", "1")
    with subprocess.Popen(
        command("perf-produce", *flags, *slow), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "records sent" in process.stdout.readline()
        run("perf-produce", *flags, "--num-records", "7")
        complaint = process.stderr.read()
        process.stdout.read()
        assert process.wait(PATIENCE_S) == 1
    assert "another producer with this transactional id has started" in complaint
    read = ("--topic", name, "--isolation-level", "read_committed", "--from-beginning", "--max-messages", "7")
    assert len(run("consume", "--bootstrap-server", broker.address, *read)[0].splitlines()) == 7
    with RawConnection(broker.address) as connection:
        every = raw.READ_UNCOMMITTED
        until(lambda: raw.latest(connection, name) == raw.latest(connection, name, isolation=every), "no transaction is open")


@pytest.mark.parametrize("transactions", [(), ("--transaction-duration-ms", "50")], ids=["plain", "transactions"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_producer_survives_a_restart_of_its_broker(
    start_broker: Callable[..., Server], name: str, end: str, transactions: tuple[str, ...]
) -> None:
    """With idempotence, the default: each record once and in order, also after retries."""
    server = start_broker()
    create(server, name, 2)
    count = 6000
    flags = ("--bootstrap-server", server.address, "--topic", name, "--num-records", str(count), "--payload-monotonic")
    slow = ("--throughput", "3000", "--reporting-interval", "100", "--print-metrics", "--json", "--command-property", "batch.size=500")
    words = command("perf-produce", *flags, *slow, *transactions)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["records"] > 0
        process.send_signal(signal.SIGSTOP)  # otherwise a slow machine lets it send everything before the broker is gone
        if end == "stop":
            server.stop()
        else:
            server.kill()
        process.send_signal(signal.SIGCONT)
        server.start()
        *_, total, metrics = rows(process.stdout.read())
        assert process.wait(PATIENCE_S) == 0
    assert total["records"] == count
    assert metrics["retries"] > 0 or metrics["connections"] > 1
    if transactions:
        assert metrics["transactions"] > 1
        assert committed(server, name, count) == list(range(count))
    else:
        assert sorted(int(record.value) for record in everything(server, name)) == list(range(count))


def test_a_reader_survives_a_restart_of_its_broker(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker()
    create(server, name)
    flags = ("--bootstrap-server", server.address, "--topic", name)
    run("perf-produce", *flags, "--num-records", "100", "--record-size", "10")
    reader = command("perf-consume", *flags, "--num-records", "200", "--show-detailed-stats", "--reporting-interval", "50", "--hide-header")
    with subprocess.Popen(reader, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        output = process.stdout
        assert output is not None
        until(lambda: output.readline().split(", ")[4] == "100", "the first hundred are read", every_s=0)
        server.restart()
        run("perf-produce", *flags, "--num-records", "100", "--record-size", "10")
        assert process.wait(PATIENCE_S) == 0


def test_errors_are_one_sentence(start_broker: Callable[..., Server], name: str, tmp_path: Path) -> None:
    server = start_broker({"auto.create.topics.enable": "false"})
    flags = ("--bootstrap-server", server.address, "--topic", name)
    produce = ("perf-produce", *flags, "--num-records", "10")
    for argv in ((*produce, "--record-size", "10"), ("perf-consume", *flags, "--num-records", "10")):
        _, complaint = run(*argv, status=1)
        assert complaint.startswith(f"txbroker {argv[0]}: topic {name} does not exist; see "), complaint
    create(server, name, 1, "max.message.bytes=1000")
    _, complaint = run(*produce, "--record-size", "5000", status=1)
    assert "(MESSAGE_TOO_LARGE); raise the topic's max.message.bytes" in complaint
    _, complaint = run(*produce, "--record-size", "10", "--transactional-id", "t", "--command-property", "acks=1", status=2)
    assert complaint.startswith("txbroker perf-produce: a transactional id needs acks=all")
    huge = "--transactional-id", "t", "--command-property", "transaction.timeout.ms=2147483647"
    _, complaint = run(*produce, "--record-size", "10", *huge, status=2)
    assert "(INVALID_TRANSACTION_TIMEOUT); lower transaction.timeout.ms" in complaint
    _, complaint = run(*produce, "--record-size", "10", "--command-property", "batchsize=5", status=2)
    assert "batchsize: the property is not supported; supported are acks, " in complaint
    _, complaint = run(*produce, "--payload-file", str(tmp_path / "missing"), status=1)
    assert complaint.endswith("missing cannot be read: No such file or directory; correct --payload-file\n")
    server.stop()
    _, complaint = run(*produce, "--record-size", "10", status=1)
    assert re.fullmatch(r"txbroker perf-produce: no connection to .* \(Connection refused\); start a broker with .*\n", complaint)


def test_kafkas_own_tools_agree(broker: Server, name: str) -> None:
    """Both tools count the records of each other alike."""
    create(broker, name, 2)
    flags = ("--bootstrap-server", broker.address, "--topic", name)
    run("perf-produce", *flags, "--num-records", "3000", "--record-size", "200", "--command-property", "compression.type=lz4")
    java.run("kafka-producer-perf-test", *flags, "--num-records", "2000", "--record-size", "100", "--throughput", "-1",
             "--command-property", "compression.type=zstd")
    patient = ("--num-records", "5000", "--hide-header", "--timeout", "50000")
    line = java.run("kafka-consumer-perf-test", *flags, *patient).strip().splitlines()[-1].split(", ")
    (ours,) = rows(run("perf-consume", *flags, "--num-records", "5000", "--json")[0])
    assert int(line[4]) == ours["records"] == 5000
    assert float(line[2]) == round(ours["bytes"] / 1024 / 1024, 4)
    assert ours["bytes"] == 3000 * 200 + 2000 * 100
