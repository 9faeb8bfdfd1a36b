"""`load --commit-group`: a consumer group's committed offsets follow the table and never go back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.cli.commands import run
from tests.spark.loads import Load
from tests.spark.producing import produce
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.topic_source import TopicSource


def committed(broker: Server, group: str, topic: str, partitions: int = 3) -> list[tuple[int, int] | None]:
    """Offset and leader epoch of each partition."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    found = [consumer.committed(TopicPartition(topic, index), metadata=True) for index in range(partitions)]
    consumer.close()
    return [None if one is None else (one.offset, one.leader_epoch) for one in found]


def commit(broker: Server, group: str, topic: str, offset: int) -> None:
    """An offset of partition 1."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 1)])
    consumer.commit({TopicPartition(topic, 1): OffsetAndMetadata(offset, "", -1)})
    consumer.close()


def test_a_group_follows_the_table_and_never_goes_back(broker: Server, topic: str, name: str, loading: Load) -> None:
    commit(broker, name, topic, 11)
    first = loading(group=name).group
    assert first is not None and (first.committed, first.problem) == (2, None)
    assert committed(broker, name, topic) == [(10, -1), (11, -1), (10, -1)]
    produce(broker, topic, 6)
    loading()
    again = loading(group=name)
    assert not again.loaded and again.group is not None and again.group.committed == 3
    assert committed(broker, name, topic) == [(12, -1)] * 3
    output, _ = run("groups", "--bootstrap-server", broker.address, "--describe", "--group", name, "--json")
    assert [json.loads(line)["lag"] for line in output.splitlines()] == [0, 0, 0]


def test_a_group_with_members_is_refused_before_anything_is_loaded(broker: Server, topic: str, name: str, table: Path,
                                                                   loading: Load) -> None:
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.address, group_id=name, auto_offset_reset="earliest")
    next(consumer)
    with pytest.raises(CommandFailed, match=r"has members \(state Stable\), whose commits --commit-group would overwrite"):
        loading(group=name)
    assert not table.exists()
    consumer.close(autocommit=False)
    loading(group=name)
    assert committed(broker, name, topic) == [(10, -1)] * 3


@pytest.mark.usefixtures("commands_share_the_session")
def test_a_group_that_got_members_meanwhile_costs_no_data(broker: Server, topic: str, name: str, table: Path, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer joins between the check at the start and the commit: the command reports it, and the next run commits."""
    consumers = []

    def joins(source: TopicSource, group: str) -> None:
        consumer = KafkaConsumer(topic, bootstrap_servers=source.servers, group_id=group, auto_offset_reset="earliest")
        next(consumer)
        consumers.append(consumer)

    report = tmp_path / "report.json"
    flags = ("--bootstrap-server", broker.address, "--topic", topic, "--table", str(table), "--commit-group", name, "--json", str(report))
    with monkeypatch.context() as patch:
        patch.setattr("txbroker.spark.load.check_group", joins)
        output, complaint = run("spark", "load", *flags, status=2)
    assert output.splitlines()[-1] == "30 rows of 30 offsets in 3 partitions loaded"
    assert f"the data is loaded, but group {name} has members" in complaint
    assert json.loads(report.read_text())["ok"] is False
    consumers[0].close(autocommit=False)
    output, _ = run("spark", "load", *flags)
    assert output.splitlines() == [f"group {name}: the offsets of 3 partitions committed", "nothing new"]
    assert json.loads(report.read_text())["group"] == {"group": name, "committed": 3, "problem": None}
