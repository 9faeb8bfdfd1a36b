"""Between txbroker and Apache Kafka, in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import CODECS, COMPACTED, GROUP, TRANSACTIONAL, commit_offsets, content, keyed, send, transaction
from tests.mirror.mirroring import Running, batches, mirror, same_records, without_renumbering
from tests.mirror.test_groups import commit, committed
from tests.mirror.test_resuming import late_batches
from tests.support.kafka import KafkaProcess
from tests.support.raw_admin import create_topic, delete_records
from tests.support.records import numbered, samples
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.mirror.service import MirrorFailed

pytestmark = pytest.mark.process
Both = tuple[Server, Server]
EVERY = re.compile("(?!late).*")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    server = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    server.start()
    until(lambda: _can_commit(server), "groups can commit")
    yield server
    server.close()


def _can_commit(server: Server) -> bool:
    """Whether the topic of offsets is there: Kafka creates it when a group is used for the first time."""
    try:
        commit_offsets(server, "none", {0: 0})
    except KafkaException as error:
        return error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    return True


def test_from_apache_kafka(turning: Turning, both: Both, kafka: KafkaProcess) -> None:
    """Every codec, committed and aborted transactions, LogAppendTime, a log start offset within a batch, a group."""
    target = both[1]
    for codec in CODECS:
        create_topic(kafka, f"codec-{codec}", 2)
        send(kafka, f"codec-{codec}", samples(150, seed=len(codec)), codec=codec)
    delete_records(kafka, f"codec-{CODECS[-1]}", 40)
    create_topic(kafka, COMPACTED, 1, {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
    send(kafka, COMPACTED, keyed(200))
    create_topic(kafka, TRANSACTIONAL, 2)
    for number, commits in enumerate((True, False, True, True, False)):
        transaction(kafka, TRANSACTIONAL, number, commit=commits)
    commit_offsets(kafka, f"codec-{CODECS[0]}", {0: 30, 1: 20})
    mirror(turning, kafka, target, include=EVERY, groups=re.compile(GROUP))
    theirs, ours = content(kafka), content(target)
    for key, expected in theirs.records.items():
        if key[0] == "read_committed":
            assert [(each[1][1], *each[2:]) for each in ours.records[key]] == [(each[1][1], *each[2:]) for each in expected], key
    assert ours.configs[TRANSACTIONAL] == theirs.configs[TRANSACTIONAL]
    assert theirs.configs[COMPACTED] == {**ours.configs[COMPACTED], "message.timestamp.type": "LogAppendTime"}, "timestamps are kept"
    topic = f"codec-{CODECS[0]}"
    assert committed(target, GROUP, (topic, 0), (topic, 1)) == [(30, "at 30"), (20, "at 20")]
    assert len(ours.records["read_committed", TRANSACTIONAL, 0]) and len(ours.records["read_committed", COMPACTED, 0])
    same = mirror(turning, kafka, both[0], include=EVERY, same_offsets=True, groups=re.compile(GROUP))
    assert same.report["batches"]["re_encoded"] <= 2, "the batches that hold the log start offsets"
    found = content(both[0])
    for key, expected in theirs.records.items():
        if key[0] == "read_committed":
            assert found.records[key] == expected, key


@pytest.mark.parametrize("codec", CODECS)
def test_to_apache_kafka(turning: Turning, both: Both, kafka: KafkaProcess, name: str, codec: str) -> None:
    source = both[0]
    create_topic(source, name)
    send(source, name, samples(100, seed=8), codec=codec)
    commit(source, name, {(name, 0): 70})
    mirror(turning, source, kafka, name, groups=re.compile(re.escape(name)))
    assert [without_renumbering(each) for each in batches(kafka, name)] == [without_renumbering(each) for each in batches(source, name)]
    assert committed(kafka, name, (name, 0)) == [(70, "at 70")]
    with pytest.raises(MirrorFailed, match="--same-offsets needs txbroker on the target"):
        mirror(turning, source, kafka, name, same_offsets=True)


@pytest.mark.parametrize("late", ["before", "after"])
def test_late_batches_at_apache_kafka(
    turning: Turning, both: Both, kafka: KafkaProcess, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_batches(turning, both[0], kafka, f"late-{late}", late, monkeypatch)


def test_a_map_that_is_older_than_apache_kafka(turning: Turning, both: Both, kafka: KafkaProcess, name: str) -> None:
    source = both[0]
    create_topic(source, name)
    for seed in (1, 2):
        send(source, name, numbered(50, start=50 * seed), codec="lz4")
        running = Running(turning, source, kafka, topics=[name], checkpoint_every_s=3600.0)
        running.until_copied(50 * seed)
        running.crash()
    assert mirror(turning, source, kafka, name).report["records"] == 0 and same_records(source, kafka, name) == 100
