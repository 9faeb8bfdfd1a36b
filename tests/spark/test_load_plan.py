"""`load --dry-run`, which writes nothing, and `load --rebase`, which continues a table with the same log in another cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.spark.loads import Load, offsets, summary, whole
from tests.spark.producing import produce
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.load import LoadOptions, LoadReport, load
from txbroker.spark.tables.load_commit import parse
from txbroker.spark.tables.opening import open_table
from txbroker.spark.topic_source import TopicSource


@pytest.mark.usefixtures("commands_share_the_session")
def test_a_dry_run(spark: Any, broker: Server, topic: str, table: Path, tmp_path: Path, loading: Load) -> None:
    report = tmp_path / "report.json"
    flags = ("--bootstrap-server", broker.address, "--topic", topic, "--table", str(table), "--json", str(report))
    output, _ = run("spark", "load", *flags, "--dry-run", "--split", "4")
    lines = output.splitlines()
    assert [line.split(", about")[0] for line in lines[:3]] == [f"{topic}-{index} [0, 10): 10 offsets, 3 tasks" for index in range(3)]
    assert lines[3].startswith(f"a load into the new delta table {table} would read 30 offsets in 9 tasks, about")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"], "neither a table nor a lock"
    written = json.loads(report.read_text())
    assert written["dry_run"] and all(0 < one["bytes"] < 10_000 for one in written["planned"])

    loading(format="parquet")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert run("spark", "load", *flags, "--dry-run")[0] == f"nothing new for the parquet table {table}\n"
    produce(broker, topic, 30)
    delete_records(broker, topic, 14, 1)
    _, complaint = run("spark", "load", *flags, "--dry-run", status=2)
    assert "deleted before they were read: 4 offsets" in complaint
    output, _ = run("spark", "load", *flags, "--dry-run", "--on-expired", "skip")
    assert f"{topic}-1 [10, 14): expired before it was loaded, would be skipped" in output.splitlines()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == sorted({*before, str(report)})


def send(server: Server, topic: str, start: int, end: int, text: str = "value") -> None:
    """Records that are the same wherever they are sent, with offsets [start, end)."""
    producer = KafkaProducer(bootstrap_servers=server.address)
    for offset in range(start, end):
        producer.send(topic, f"{text} {offset}".encode(), b"k", partition=0, timestamp_ms=1_700_000_000_000 + offset)
    producer.close()


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_the_same_log_in_another_cluster(
    spark: Any, broker: Server, start_broker: Callable[..., Server], name: str, table: Path, form: str
) -> None:
    other = start_broker()
    for server in (broker, other):
        create_topic(server, name, configs=KEEP)
        send(server, name, 0, 10)

    def loading(server: Server, *, rebase: bool = False) -> LoadReport:
        return load(spark, LoadOptions(TopicSource(server.address, [name]), str(table), format=form, rebase=rebase))

    first = loading(broker, rebase=True)
    other_id = r"has data of the cluster .*; --rebase continues if .* the same records"
    with pytest.raises(CommandFailed, match=other_id):
        loading(other)
    assert not loading(other, rebase=True).loaded
    send(other, name, 10, 14)
    moved = loading(other, rebase=True)
    assert summary(moved) == [(0, 10, 14, 4)] and not moved.wrong
    assert offsets(spark, table) == whole(name, 14, 1)
    send(other, name, 14, 15)
    assert summary(loading(other)) == [(0, 14, 15, 1)], "no flag is needed any more"
    with pytest.raises(CommandFailed, match=other_id):
        loading(broker)
    before = {"cluster_id": first.snapshot.cluster_id, "topic_ids": {name: first.snapshot.topics[0].topic_id}}
    assert recorded(table) == [before, before], "in the commit of the data, and in that of its check"


def recorded(table: Path) -> list[Any]:
    """`rebased_from` of all commits that have it."""
    if (table / "_manifests").is_dir():
        texts = [json.dumps(json.loads(path.read_text())["load"]) for path in sorted((table / "_manifests").iterdir())]
    else:
        lines = [json.loads(line) for path in sorted((table / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()]
        texts = [line["commitInfo"].get("userMetadata", "") for line in lines if "commitInfo" in line]
    return [commit.rebased_from for commit in map(parse, texts) if commit is not None and commit.rebased_from is not None]


def test_another_log_is_refused(spark: Any, broker: Server, start_broker: Callable[..., Server], name: str, table: Path) -> None:
    other = start_broker()
    for server, text in ((broker, "value"), (other, "other value")):
        create_topic(server, name, configs=KEEP)
        send(server, name, 0, 10, text)
    load(spark, LoadOptions(TopicSource(broker.address, [name]), str(table), format="parquet"))
    send(other, name, 10, 20)
    with pytest.raises(CommandFailed, match=f"{name}-0 has another record at offset 9 than the table, so --rebase would mix two logs"):
        load(spark, LoadOptions(TopicSource(other.address, [name]), str(table), rebase=True))
    assert open_table(spark, str(table)).read().count() == 10
