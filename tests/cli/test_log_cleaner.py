"""`txbroker log-cleaner` on a real broker and on its files."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import on_terminal, run
from tests.metrics.scraping import ON, Scrape
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import create_topic, until_leaders
from tests.support.server import Server
from txbroker.cli import cleaner_requests

pytestmark = pytest.mark.process

COMPACTED = {"cleanup.policy": "compact", "retention.ms": "-1"}


def write(server: Server, topic: str, rounds: int, *, keys: int = 2, partitions: int = 1, size: int = 1) -> None:
    with KafkaProducer(bootstrap_servers=server.address, linger_ms=50) as producer:
        for number in range(rounds):
            for key in range(keys):
                for partition in range(partitions):
                    value = b"%0*d" % (size, number)
                    producer.send(topic, value, key=b"%d" % key, partition=partition, timestamp_ms=1_700_000_000_000)
        producer.flush()


def cleaner(server: Server, *arguments: str, status: int = 0) -> tuple[str, str]:
    return run("log-cleaner", "--bootstrap-server", server.address, *arguments, status=status)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def _ours(broker: Server) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("Apache Kafka's cleaner cannot be asked")


def test_compact_now_and_its_report(broker: Server, name: str) -> None:
    create_topic(broker, name, 2, COMPACTED)
    write(broker, name, 5, partitions=2)
    before = objects(cleaner(broker, "--describe", "--topic", name, "--json")[0])
    assert [(row["topic"], row["partition"], row["why"], row["last"]) for row in before] == [
        (name, 0, "active-segment", None), (name, 1, "active-segment", None),
    ]  # fmt: skip
    compacted = f"Topic {name} is compacted: 4 of 20 records remain.\n"
    assert cleaner(broker, "--compact-now", name, "--roll", "--wait") == (compacted, "")
    after = objects(cleaner(broker, "--describe", "--topic", name, "--json")[0])
    assert [(row["why"], row["last"]["records_removed"], row["first_dirty_offset"]) for row in after] == [("nothing-dirty", 8, 10)] * 2
    heading, first, second = cleaner(broker, "--describe", "--topic", name)[0].splitlines()
    assert heading.split() == ["PARTITION", "STATE", "DIRTY", "LAST-RUN", "REMOVED", "NEXT-RUN", "TAKES", "WHY-NOT-NOW"]
    assert first.startswith(f"{name}-0 ") and second.startswith(f"{name}-1 ")
    assert " 8 records, " in first
    (done,) = objects(cleaner(broker, "--compact-now", name, "--json")[0])
    partitions = done.pop("partitions")
    assert done == {"topic": name, "operation": "txbroker.compact", "value": "now", "done": True}
    assert [(row["partition"], row["compacted"], row["records_before"], row["why"]) for row in partitions] == [
        (0, False, None, "nothing-dirty"), (1, False, None, "nothing-dirty"),
    ]  # fmt: skip
    assert f"{name}-1" in cleaner(broker, "--describe")[0], "all compacted topics"


def test_a_compaction_that_cannot_run_reports_why(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, {**COMPACTED, "min.compaction.lag.ms": "3600000"})
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for value in (b"1", b"2", None):
            producer.send(name, value, key=b"k")
        producer.flush()
    young = "records from offset 0 on are younger than min.compaction.lag.ms=3600000"
    output, _ = cleaner(broker, "--compact-now", name, "--roll", "--wait")
    assert output == f"No partition of topic {name} was compacted.\n{name}-0: {young}.\n"
    settings = ("--add-config", "min.compaction.lag.ms=0,delete.retention.ms=0")
    run("configs", "--bootstrap-server", broker.address, "--alter", "--topic", name, *settings)
    output, _ = cleaner(broker, "--compact-now", name, "--wait")
    assert output == f"Topic {name} is compacted: 1 of 3 records remain.\n", "the tombstone gets its horizon"
    output, _ = cleaner(broker, "--compact-now", name, "--roll", "--wait")
    assert output.startswith(f"No partition of topic {name} was compacted.\n{name}-0: it is clean up to its end at offset 3")
    assert "tombstones older than delete.retention.ms are removed by the next pass, after more has been written" in output


def test_a_long_pass_is_waited_for_however_often_a_request_times_out(
    start_broker: Callable[..., Server], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = start_broker({"log.cleaner.io.max.bytes.per.second": "200000"})
    create_topic(slow, name, 1, COMPACTED)
    write(slow, name, 300, keys=3, size=500)
    monkeypatch.setattr(cleaner_requests, "ASK_AGAIN_MS", 300)
    monkeypatch.setattr(cleaner_requests, "BEGIN_MS", 300)
    begun, _ = cleaner(slow, "--compact-now", name, "--roll")
    assert begun == f"Topic {name} is being compacted; see `txbroker log-cleaner --describe --topic {name}`.\n"
    compacted = f"Topic {name} is compacted: 3 of 900 records remain.\n"
    assert cleaner(slow, "--compact-now", name, "--wait") == (compacted, "")
    (row,) = objects(cleaner(slow, "--describe", "--topic", name, "--json")[0])
    assert (row["last"]["passes"], row["last"]["records_removed"], row["last"]["records_after"]) == (1, 897, 3), "one pass"


def test_expiry_now(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, {"retention.ms": "-1"})
    write(broker, name, 3)
    run("configs", "--bootstrap-server", broker.address, "--alter", "--topic", name, "--add-config", "retention.ms=1000")
    assert cleaner(broker, "--expire", name, "--wait") == (f"The expired records of topic {name} are deleted.\n", "")
    assert run("get-offsets", "--bootstrap-server", broker.address, "--topic", name, "--time", "earliest")[0] == f"{name}:0:6\n"


def test_refused_requests(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, {})
    _, complaint = cleaner(broker, "--compact-now", name, "--wait", status=1)
    why = f"cleanup.policy of {name} has no compact (POLICY_VIOLATION)"
    assert complaint == f"txbroker log-cleaner: topic {name} was not compacted: {why}\n"
    for action in ("--compact-now", "--expire"):
        assert "does not exist" in cleaner(broker, action, f"no-{name}", "--wait", status=1)[1]
    assert "does not exist" in cleaner(broker, "--describe", "--topic", f"no-{name}", status=1)[1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--describe"], "--describe needs --bootstrap-server"),
        (["--expire", "t", "--roll"], "--roll is only valid with --compact-now and --dry-run, not with --expire"),
        (["--describe", "--wait"], "--wait is only valid with --compact-now and --expire, not with --describe"),
        (["--compact-now", "t", "--partition", "0"], "--partition is only valid with --dry-run, not with --compact-now"),
        (["--compact-now", "t", "--topic-config", "a=b"], "--topic-config is only valid with --dry-run, not with --compact-now"),
        (["--dry-run", "--topic", "t"], "--dry-run needs --topic, and --log-dir"),
        (["--dry-run", "--log-dir", "."], "--dry-run needs --topic, and --log-dir"),
        (["--describe", "--dry-run"], "not allowed with"),
        ([], "is required"),
        (["--bootstrap-server", "127.0.0.1:1", "--compact-now", ""], "--compact-now is empty; specify a topic"),
        (["--bootstrap-server", "127.0.0.1:1", "--expire", "", "--wait"], "--expire is empty; specify a topic"),
        (["--bootstrap-server", "127.0.0.1:1", "--describe", "--topic", ""], "--topic is empty; specify a topic"),
        (["--dry-run", "--topic", "t", "--log-dir", ".", "--partition", "-1"], "must be a whole number"),
    ],
)
def test_conflicting_flags(arguments: list[str], complaint: str) -> None:
    try:
        _, said = run("log-cleaner", *arguments, status=2)
    except SystemExit as ended:
        assert ended.code == 2
    else:
        assert complaint in said


# The dry run


def version(number: int) -> list[tuple[str, bytes]]:
    return [("version", struct.pack(">q", number))]


def test_a_dry_run_predicts_the_pass_of_each_strategy(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, {**COMPACTED, "compaction.strategy.header": "version"})
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for key, value, timestamp, number in [(b"a", b"1", 10, 1), (b"a", b"2", 30, 2), (b"a", b"3", 20, 3), (b"b", b"1", 10, 1),
                                              (b"c", None, 10, 1), (b"end", b"1", 10, 1)]:  # fmt: skip
            producer.send(name, value, key=key, timestamp_ms=1_700_000_000_000 + timestamp, headers=version(number))
        producer.flush()
    place = ("log-cleaner", "--dry-run", "--log-dir", str(broker.data), "--topic", name, "--bootstrap-server", broker.address)
    # Acknowledged records are in the page cache, so the dry run reads them.
    output, complaint = run(*place)
    assert output.startswith(f"{name}-0: no record would be removed: all dirty records, from offset 0 on, are in the active segment")
    assert "use --roll" in output
    assert complaint == ""

    def gone(strategy: str) -> dict[int, tuple[str, int | None]]:
        *rows, summary = objects(run(*place, "--roll", "--json", "--topic-config", f"compaction.strategy={strategy}")[0])
        assert summary["records"] == len(rows)
        assert all((row["topic"], row["partition"], row["key"]) == (name, 0, "a") for row in rows)
        return {row["offset"]: (row["reason"], row["kept_offset"]) for row in rows}

    assert gone("offset") == {0: ("obsolete", 2), 1: ("obsolete", 2)}
    assert gone("timestamp") == {0: ("obsolete", 1), 2: ("obsolete", 1)}
    assert gone("header") == {0: ("obsolete", 2), 1: ("obsolete", 2)}
    lines = run(*place, "--roll")[0].splitlines()
    assert lines[0].startswith(f"{name}-0 offset: 0 timestamp: 1700000000010 key: a size: ")
    assert lines[0].endswith(" reason: obsolete kept: 2")
    assert lines[2].startswith(f"{name}-0: 2 records of ")
    cleaner(broker, "--compact-now", name, "--roll", "--wait")
    (row,) = objects(cleaner(broker, "--describe", "--topic", name, "--json")[0])
    assert row["last"]["records_removed"] == 2, "as predicted"


def test_a_dry_run_on_files_without_a_broker(broker: Server, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, 2, COMPACTED)
    write(broker, name, 3, partitions=2)
    for partition in (0, 1):
        shutil.copytree(broker.data / f"{name}-{partition}", tmp_path / f"{name}-{partition}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    place = ("log-cleaner", "--dry-run", "--log-dir", str(tmp_path), "--topic", name)
    _, complaint = run(*place, "--roll", status=2)
    assert f"the topic's configuration is unknown: {tmp_path} has no metadata of topic {name}; specify all log.dirs" in complaint
    place = (*place, "--topic-config", "compaction.strategy=offset")
    output, complaint = run(*place, "--roll", "--partition", "1")
    assert output.splitlines()[-2:] == [
        f"{name}-1: 4 records of 36 B would be removed (4 obsolete); offsets 0 to 6 would become clean.",
        "The topic's configuration is assumed from --topic-config: compaction.strategy=offset.",
    ]
    assert complaint == ""
    assert "KEPT-OFFSET" in on_terminal(*place, "--roll", columns=120)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before, "no file is changed"
    both = run("log-cleaner", "--dry-run", "--log-dir", f"{tmp_path},{broker.data}", "--topic", name, "--roll", "--partition", "1")[0]
    assert both.splitlines()[:4] == output.splitlines()[:4] and "assumed" not in both, "the settings are in the second directory"
    _, complaint = run(*place, "--partition", "7", status=1)
    assert f"no log of {name}-7 in {tmp_path}" in complaint
    _, complaint = run(*place, "--topic-config", "compaction.strategy=newest", status=2)
    assert "it must be one of offset, timestamp, header" in complaint
    _, complaint = run("log-cleaner", "--dry-run", "--log-dir", str(tmp_path / "none"), "--topic", name, status=1)
    assert "cannot list" in complaint


def test_a_dry_run_reads_the_settings_of_the_log_directory_while_a_broker_runs_and_after_it(
    start_broker: Callable[..., Server], name: str
) -> None:
    own = start_broker()
    create_topic(own, name, 1, {**COMPACTED, "compaction.strategy": "timestamp"})
    with KafkaProducer(bootstrap_servers=own.address) as producer:
        for timestamp in (20, 10, 5):
            producer.send(name, b"v", key=b"k", timestamp_ms=1_700_000_000_000 + timestamp)
        producer.flush()
    place = ("log-cleaner", "--dry-run", "--log-dir", str(own.data), "--topic", name, "--roll", "--json")

    def check() -> None:
        output, complaint = run(*place)
        assert complaint == ""
        *records, summary = objects(output)
        assert (summary["assumed"], summary["strategy"]) == (False, "timestamp")
        assert [(row["offset"], row["kept_offset"]) for row in records] == [(1, 0)], "the last record is always kept"

    check()
    assert own.stop() == own.stopped_status
    check()


def test_damage_is_reported(broker: Server, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, 1, COMPACTED)
    write(broker, name, 3)
    copy = tmp_path / f"{name}-0"
    shutil.copytree(broker.data / f"{name}-0", copy)
    log = copy / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 0xFF
    log.write_bytes(content)
    _, complaint = run("log-cleaner", "--dry-run", "--log-dir", str(tmp_path), "--topic", name, "--roll",
                       "--topic-config", "cleanup.policy=compact", status=1)  # fmt: skip
    assert f"{name}-0 cannot be read: " in complaint
    assert f"see `txbroker log verify {copy}`" in complaint


def test_an_uncleanable_partition_is_reported_with_its_reason(start_broker: Callable[..., Server], name: str) -> None:
    own = start_broker({**ON, "log.cleaner.backoff.ms": "3600000"})
    create_topic(own, name, 2, COMPACTED)
    write(own, name, 3, partitions=2)
    assert own.stop() == own.stopped_status
    log = own.data / f"{name}-1" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 0xFF
    log.write_bytes(content)
    own.start()
    until_leaders(own, name, 2)
    _, complaint = cleaner(own, "--compact-now", name, "--roll", "--wait", status=1)
    assert complaint.startswith(f"txbroker log-cleaner: topic {name} was not compacted: {name}-1: cleaning aborted: ")
    assert "the partition is uncleanable, and `txbroker log verify` shows what is damaged" in complaint
    good, bad = objects(cleaner(own, "--describe", "--topic", name, "--json")[0])
    assert (good["state"], good["why"], good["last"]["records_removed"]) == ("idle", "nothing-dirty", 4)
    assert (bad["state"], bad["why"], bad["last"]) == ("uncleanable", "uncleanable", None)
    assert bad["uncleanable_reason"] and bad["uncleanable_reason"] in bad["why_not_now"]
    assert (good["next_run_ms"], bad["next_run_ms"]) == (None, None), "no pass starts automatically"
    findings, _ = run("doctor", "--bootstrap-server", own.address, "--topic", name, "--json", status=1)
    assert any(row["outcome"] == "failed" and bad["uncleanable_reason"] in row["found"] for row in objects(findings))
    reported = Scrape(own)
    directory = str(own.data)
    assert reported("kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory=directory) == 1
    assert reported("kafka_log_logcleanermanager_uncleanable_bytes", logDirectory=directory) == bad["cleanable_bytes"] > 0
    assert reported("txbroker_cleaner_failures_total", kind="corrupt") == 1
