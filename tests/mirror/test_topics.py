"""Which topics are copied, and what stops a copy instead of going on with other data."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from tests.cli.commands import run
from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import content, send
from tests.mirror.mirroring import Running, batches, mirror
from tests.support.raw_admin import KEEP, create_topic, delete_records, until_leaders
from tests.support.records import numbered
from tests.support.server import Server
from txbroker.errors import ErrorCode
from txbroker.mirror.cluster import Cluster
from txbroker.mirror.service import MirrorFailed
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.schema import Request

pytestmark = pytest.mark.process
Both = tuple[Server, Server]


def filled(server: Server, name: str, count: int = 20, partitions: int = 1) -> None:
    create_topic(server, name, partitions, KEEP)
    send(server, name, numbered(count))


def delete(server: Server, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.delete_topics([name])
    admin.close()


def records(server: Server, name: str, partition: int = 0) -> int:
    return sum(each.header.count for each in batches(server, name, partition))


def test_partitions_that_are_added(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    running = Running(turning, source, target, topics=[name], discover_every_s=0.1)
    running.until(lambda: running.partition(name).target_end == 20 if running.mirror.topics.partitions else False, "the first is copied")
    admin = KafkaAdminClient(bootstrap_servers=source.address)
    admin.create_partitions({name: NewPartitions(3)})
    admin.close()
    until_leaders(source, name, 3)
    send(source, name, numbered(30))
    running.until(lambda: len(running.mirror.topics.partitions) == 3, "the new partitions are found")
    running.until(lambda: running.partition(name, 2).target_end == 10 and running.partition(name).target_end == 30, "they are copied")
    assert running.end() is None
    assert [records(target, name, index) for index in range(3)] == [30, 10, 10]


def test_topics_that_appear_and_topics_that_do_not_match(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, f"{name}-1")
    filled(source, f"other-{name}-1")
    running = Running(turning, source, target, include=re.compile(f"{name}-.*"), discover_every_s=0.1)
    running.until(lambda: running.mirror.topics.partitions, "the first topic is found")
    filled(source, f"{name}-2")
    running.until(lambda: len(running.mirror.topics.partitions) == 2, "the second topic is found")
    running.until(lambda: running.partition(f"{name}-2").target_end == 20, "it is copied")
    assert running.end() is None
    assert [key[1] for key in content(target).records if key[0] == "read_committed" and name in key[1]] == [f"{name}-1", f"{name}-2"]


def test_a_topic_that_was_created_again(turning: Turning, both: Both, name: str) -> None:
    """While the mirror is down, and with more records than the old one had; then while it runs."""
    source, target = both
    filled(source, name)
    mirror(turning, source, target, name)
    delete(source, name)
    filled(source, name, 50)
    with pytest.raises(MirrorFailed, match="deleted on the source and created again"):
        mirror(turning, source, target, name)
    assert records(target, name) == 20
    delete(target, name)
    running = Running(turning, source, target, topics=[name], discover_every_s=0.1)
    running.until(lambda: running.mirror.topics.partitions and running.partition(name).target_end == 50, "it is copied from its beginning")
    delete(source, name)
    filled(source, name, 60)
    running.until(lambda: running.mirror.stopped, "the partition stops")
    assert "deleted on the source" in running.problems[0]
    assert running.end() is None and records(target, name) == 50


def test_records_that_expired(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    mirror(turning, source, target, name)
    send(source, name, numbered(20, start=20))
    delete_records(source, name, 25)
    done = mirror(turning, source, target, name)
    assert done.report["states"] == {"stopped": 1}
    assert f"the source deleted offsets 20 to 24 of {name}-0 before they were copied; --on-expired skip" in done.problems[0]
    (stopped,) = done.report["partitions"]
    assert (stopped["copied_to"], stopped["target_end"]) == (20, 20)
    assert records(target, name) == 20
    assert mirror(turning, source, target, name, skip_expired=True).report["records"] == 15
    values = [int(each[3].split()[0]) for each in content(target).records["read_committed", name, 0]]
    assert values == [*range(20), *range(25, 40)]


def test_records_that_expire_while_the_mirror_runs(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    running = Running(turning, source, target, topics=[name])
    running.until(lambda: running.mirror.topics.partitions and running.partition(name).target_end == 20, "it is copied")
    send(source, name, numbered(20, start=20))  # the reactor does not turn meanwhile
    delete_records(source, name, 40)
    send(source, name, numbered(5, start=40))
    running.until(lambda: running.mirror.stopped, "the partition stops")
    assert "the source deleted offsets 20 to 39" in running.problems[0]
    assert running.end() is None and records(target, name) == 20


def test_other_producers(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    mirror(turning, source, target, name)
    send(target, name, numbered(3))
    send(source, name, numbered(5))
    done = mirror(turning, source, target, name)
    assert done.report["states"] == {"stopped": 1} and "records of another producer at offset 20" in done.problems[0]
    assert records(target, name) == 23, "nothing was added"
    filled(source, f"{name}-2")
    filled(target, f"{name}-2", 3)
    done = mirror(turning, source, target, f"{name}-2")
    assert "has records that this mirror did not copy" in done.problems[0] and records(target, f"{name}-2") == 3


def test_other_producers_while_the_mirror_runs(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    running = Running(turning, source, target, topics=[name])
    running.until(lambda: running.mirror.topics.partitions and running.partition(name).target_end == 20, "it is copied")
    send(target, name, numbered(3))
    send(source, name, numbered(5))
    running.until(lambda: running.mirror.stopped, "the partition stops")
    assert "records of another producer at offset 20" in running.problems[0] and running.end() is None


def test_loops(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    mirror(turning, source, target, name)
    with pytest.raises(MirrorFailed, match="itself a copy of records from the target"):
        mirror(turning, target, source, name)
    filled(target, f"{name}-2")
    back = mirror(turning, target, source, include=re.compile(f"{name}.*"))
    assert [copy.partition.topic for copy in back.mirror.topics.partitions.values()] == [f"{name}-2"]
    assert list(back.report["refused"]) == [name]
    with pytest.raises(MirrorFailed, match="the same cluster"):
        mirror(turning, source, source, name)


def test_two_mirrors(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    filled(source, name)
    first = Running(turning, source, target, topics=[name])
    first.until(lambda: first.mirror.topics.partitions and first.partition(name).target_end == 20, "it is copied")
    with pytest.raises(MirrorFailed, match=f"{name} is copied by the mirror 'mirror'"):
        mirror(turning, source, target, name, name="other")
    assert not first.outcome, "a mirror of another name does not end it"
    second = Running(turning, source, target, topics=[name])
    second.until(lambda: second.mirror.topics.partitions, "the second begins")
    send(source, name, numbered(10))
    assert "another run of the mirror 'mirror' has begun" in str(first.wait())
    second.until(lambda: second.partition(name).target_end == 30, "the second copies")
    assert second.end() is None and records(target, name) == 30


def test_what_is_missing(turning: Turning, both: Both, name: str) -> None:
    with pytest.raises(MirrorFailed, match=f"topic {name} does not exist on the source"):
        mirror(turning, *both, name)


def test_a_target_that_has_just_begun(turning: Turning, both: Both, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's metadata shows the leader of the mirror's own topic before that broker leads it, and its coordinator loads after a start."""
    source, target = both
    filled(source, name)
    not_yet = {ListOffsetsRequest: 2, InitProducerIdRequest: 1}
    ask = Cluster.ask

    async def asking(self: Cluster, request: Request, *more: Any, **named: Any) -> Any:
        answer = await ask(self, request, *more, **named)
        if self.label == "target" and not_yet.get(type(request)):
            not_yet[type(request)] -= 1
            if isinstance(answer, InitProducerIdResponse):
                answer.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            else:
                answer.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer

    monkeypatch.setattr(Cluster, "ask", asking)
    mirror(turning, source, target, name, name=f"mirror-{name}")
    assert set(not_yet.values()) == {0} and records(target, name) == 20


def test_an_error_pauses_one_partition(turning: Turning, both: Both, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The target refuses a batch until its configuration allows it; another topic is copied meanwhile."""
    source, target = both
    for topic in (name, f"{name}-2"):
        filled(source, topic)
        create_topic(target, topic, 1, {**KEEP, "max.message.bytes": "100" if topic == name else "1000000"})
    running = Running(turning, source, target, topics=[name, f"{name}-2"])
    running.until(lambda: len(running.mirror.topics.partitions) == 2 and running.partition(name).failures >= 3, "the mirror retries")
    running.until_copied(20)
    refused = "max.message.bytes is 100; raise max.message.bytes of the topic on the target; pausing this partition and retrying"
    assert sum(refused in record.message for record in caplog.records) == 1, "an error is logged once"
    assert f"1 paused ({name}-0)" in running.status.line(turning.reactor.seconds())
    allowed = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", "max.message.bytes=100000")
    run("configs", "--bootstrap-server", target.address, *allowed)
    running.until_copied(40)
    assert running.end() is None and not running.problems and records(target, name) == 20
