"""Where a copy continues: no record is lost or doubled, whatever ended the mirror or a broker."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import send
from tests.mirror.mirroring import Running, batches, mirror, same_records
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic, until_leaders
from tests.support.raw_log import produce
from tests.support.records import numbered, samples
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.log.clean_shutdown import FILE_NAME as CLEAN
from txbroker.mirror.partition import PartitionCopy

pytestmark = pytest.mark.process
Both = tuple[Server, Server]
NEVER_S = 3600.0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_map_that_is_older_than_the_target(turning: Turning, both: Both, name: str, codec: str) -> None:
    """The mirror ended between two checkpoints; twice, the second time with a part of a batch left to compare."""
    source, target = both
    create_topic(source, name, 2)
    for seed in (1, 2):
        send(source, name, samples(60, seed=seed), codec=codec)
        running = Running(turning, source, target, topics=[name], checkpoint_every_s=NEVER_S)
        running.until_copied(60 * seed)
        running.crash()
    send(source, name, samples(20, seed=3), codec=codec)
    done = mirror(turning, source, target, name)
    assert done.report["records"] == 20 and same_records(source, target, name, 2) == 140
    assert [done.partition(name).map.target_of(offset) for offset in range(71)] == list(range(71))


@pytest.mark.parametrize("late", ["before", "after"])
def test_a_batch_of_an_earlier_run_that_arrives_late(
    turning: Turning, both: Both, name: str, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this run has read the target's end: before this run sends the same batch, or after it."""
    late_batches(turning, *both, name, late, monkeypatch)


def late_batches(turning: Turning, source: Server, target: Server, name: str, late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(source, name)
    send(source, name, numbered(10))
    mirror(turning, source, target, name)
    send(source, name, numbered(10, start=10))
    sent: list[bytes] = []
    send_next = PartitionCopy.send_next

    def sending(self: PartitionCopy) -> Any:
        ready = send_next(self)
        sent.append(bytes(ready.records))
        if late == "before":
            append(sent[0])
        return ready

    def append(batch: bytes) -> None:
        with RawConnection(target.address) as connection:
            assert produce(connection, name, batch).error_code == 0

    monkeypatch.setattr(PartitionCopy, "send_next", sending)
    done = mirror(turning, source, target, name)
    append(sent[0])
    assert not done.problems and same_records(source, target, name) == 20


def test_a_source_that_was_compacted_meanwhile(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name, 1, {**KEEP, "cleanup.policy": "compact"})
    records = [each._replace(key=b"%d" % (index % 5)) for index, each in enumerate(numbered(40))]
    send(source, name, records)
    running = Running(turning, source, target, topics=[name], checkpoint_every_s=NEVER_S)
    running.until_copied(40)
    running.crash()
    run("log-cleaner", "--bootstrap-server", source.address, "--compact-now", name, "--roll", "--wait")
    done = mirror(turning, source, target, name)
    assert done.report["states"] == {"stopped": 1}
    assert "40 records from offset 0 on that are not in the stored map" in done.problems[0] and "at most 40 of them" in done.problems[0]
    assert sum(each.header.count for each in batches(target, name)) == 40
    again = mirror(turning, source, target, name, accept_doubles=True)
    assert again.report["records"] == 5 and not again.problems
    send(source, name, [each._replace(key=b"new") for each in numbered(3)])
    last = mirror(turning, source, target, name)
    assert last.report["records"] == 3, "the map is whole again"
    assert [last.partition(name).map.target_of(offset) for offset in (0, 35, 39, 40, 42, 43)] == [40, 40, 44, 45, 47, 48]


def test_a_target_that_lost_its_last_records(turning: Turning, start_broker: Callable[..., Server], both: Both, name: str) -> None:
    source, target = both[0], start_broker()
    create_topic(source, name)
    for _ in range(6):
        send(source, name, samples(10, seed=2))
    mirror(turning, source, target, name)
    target.stop()
    (log,) = target.partition_directory(name).glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size * 2 // 3)
    (target.data / CLEAN).unlink()
    (target.data / "recovery-point-offset-checkpoint").unlink()
    target.start()
    until_leaders(target, name, 1)
    lost = 60 - sum(each.header.count for each in batches(target, name))
    assert lost > 0
    done = mirror(turning, source, target, name)
    assert done.report["records"] == lost and same_records(source, target, name) == 60
    assert [done.partition(name).map.target_of(offset) for offset in range(61)] == list(range(61))
    assert mirror(turning, source, target, name).report["records"] == 0


@pytest.mark.parametrize("killed", ["source", "target"])
def test_kill_9_of_a_broker(turning: Turning, start_broker: Callable[..., Server], name: str, killed: str) -> None:
    brokers = {"source": start_broker(), "target": start_broker()}
    source, target = brokers["source"], brokers["target"]
    create_topic(source, name, 3)
    send(source, name, samples(900, seed=4), codec="lz4")
    running = Running(turning, source, target, topics=[name], partition_bytes=20_000, fetch_bytes=60_000, buffer_bytes=200_000)
    copies = running.mirror.topics.partitions
    count = 900
    for fraction in (0.2, 0.5, 0.8):
        running.until(lambda limit=900 * fraction: sum(copy.target_end for copy in copies.values()) >= limit, "a part is copied")
        brokers[killed].kill()
        if killed == "target":  # if everything was copied by then, the mirror would not ask the target for anything
            send(source, name, samples(30, seed=count), codec="lz4")
            count += 30
        running.until(lambda: running.mirror.reader.problem or running.mirror.writer.problem, "the mirror notices")
        brokers[killed].start()
    running.until_copied(count)
    assert running.end() is None and same_records(source, target, name, 3) == count


@pytest.mark.parametrize("large", [0, 5], ids=["the first", "one among others"])
@pytest.mark.parametrize("same_offsets", [False, True], ids=["", "same offsets"])
def test_a_batch_that_is_refused(turning: Turning, both: Both, name: str, same_offsets: bool, large: int) -> None:
    """The batches after it are not appended in its place, although the target does not know the producer, or takes any offset."""
    source, target = both
    create_topic(source, name)
    create_topic(target, name, 1, {**KEEP, "max.message.bytes": "2000"})
    for number in range(10):
        send(source, name, numbered(2, start=2 * number, size=3000 if number == large else 100))
    running = Running(turning, source, target, topics=[name], same_offsets=same_offsets)
    running.until(lambda: any(copy.failures >= 2 for copy in running.mirror.topics.partitions.values()), "the mirror retries")
    assert "max.message.bytes" in running.problems[0]
    assert [each.header.base_offset for each in batches(target, name)] == list(range(0, 2 * large, 2))
    run("configs", "--bootstrap-server", target.address, "--entity-type", "topics", "--entity-name", name, "--alter", "--add-config",
        "max.message.bytes=100000")  # fmt: skip
    running.until_copied(20)
    assert running.end() is None and same_records(source, target, name) == 20


def test_kill_9_of_the_mirror(both: Both, name: str) -> None:
    """At random moments under load; `make crash-mirror` does it longer."""
    kill_rounds(*both, name, rounds=4, seed=1)


def kill_rounds(source: Server, target: Server, name: str, *, rounds: int, seed: int, target_too: bool = False) -> None:
    """Kill the mirror's process so often while it copies, and before that sometimes the target, then compare."""
    chance = random.Random(seed)
    create_topic(source, name, 2)
    line = command("mirror", "--from", source.address, "--to", target.address, "--topic", name)
    count = 0
    for number in range(rounds):
        more = chance.randrange(200, 800)
        send(source, name, samples(more, seed=number), codec=chance.choice(("none", "gzip", "lz4", "zstd")), **{"batch.size": 4096})
        before, count = count, count + more
        end = before + chance.randrange(more)
        target_ends = before + chance.randrange(more) if target_too and chance.random() < 0.5 else end
        process = subprocess.Popen(line, cwd=CHECKOUT, env=ENVIRONMENT, stderr=subprocess.PIPE)
        if target_ends < end:
            until(lambda limit=target_ends: copied(target, name) > limit, "a part is copied", every_s=0.001)
            target.kill()
            target.start()
            until_leaders(target, name, 2)
        until(lambda limit=end: copied(target, name) > limit, "a part is copied", every_s=0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    line.append("--until-caught-up")
    last = subprocess.run(line, cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert same_records(source, target, name, 2) == count


def copied(target: Server, name: str) -> int:
    """Offsets in the target's topic."""
    directories = [target.partition_directory(name, index) for index in range(2)]
    if not all(directory.exists() for directory in directories):
        return -1
    return sum(each.header.count for index in range(2) for each in batches(target, name, index))


