"""The two paths in ARCHITECTURE.md are what a broker does. `tests/test_tidy.py` checks that their functions exist."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import read
from tests.support import compiled
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, producer_id
from tests.support.raw_log import Producer, batch, fetch, fetch_request, produce, produce_request
from tests.support.records import Sample
from tests.support.running import ENVIRONMENT, Running
from tests.support.waiting import until
from txbroker.wire.records import WALK_IS_COMPILED

TEXT = read(CHECKOUT / "ARCHITECTURE.md")
LINES_MAX = 200
TIME = 1_700_000_000_000
PRODUCE, FETCH = "A produce request", "A fetch request"
Step = tuple[str, str]  # file and function
PARK: Step = ("api/parking.py", "ParkedRequest.park")
END_OF_TURN: Step = ("action_queue.py", "ActionQueue.end_turn")
# A profiler sees no calls in these files.
COMPILED = {str(compiled.source(module).relative_to(CHECKOUT / "txbroker")) for module in compiled.COMPILED} if WALK_IS_COMPILED else set()

# A broker that writes down which of the steps it takes.
TRACED = """
import json, os, sys
steps = {tuple(step) for step in json.loads(os.environ["STEPS"])}
taken = open(os.environ["TAKEN"], "w", buffering=1)
def note(frame, event, _):
    if event == "call":
        step = frame.f_code.co_filename.rpartition("/txbroker/")[2], frame.f_code.co_qualname
        if step in steps:
            taken.write(json.dumps(step) + "\\n")
sys.setprofile(note)
from txbroker.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def steps(heading: str) -> list[Step]:
    return re.findall(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|", section(heading), re.M)


class Traced(Running):
    """A broker whose steps are known."""

    def __init__(self, directory: Path) -> None:
        self._taken = directory / "taken"
        every = json.dumps([*steps(PRODUCE), *steps(FETCH)])
        super().__init__(
            (sys.executable, "-c", TRACED, "run"), directory, environment={**ENVIRONMENT, "STEPS": every, "TAKEN": str(self._taken)}
        )

    def taken(self) -> list[Step]:
        return [(file, function) for file, function in map(json.loads, self._taken.read_text().splitlines())]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    broker = Traced(tmp_path)
    try:
        broker.wait_ready()
        yield broker
        assert broker.end(signal.SIGTERM) == 0
    finally:
        broker.process.kill()
        broker.process.wait()


@pytest.mark.process
def test_a_broker_takes_the_steps_in_their_order(traced: Traced) -> None:
    """A fetch waits, a produce completes it; then a produce that waits for its sync, a fetch that is too large to be joined, and a produce
    whose batch has to be changed."""
    create_topic(traced, "plain")
    create_topic(traced, "synced", configs={"flush.messages": "1", "retention.ms": "-1"})
    create_topic(traced, "stamped", configs={"message.timestamp.type": "LogAppendTime"})
    with RawConnection(traced.address) as consumer, RawConnection(traced.address) as producer:
        number = producer_id(producer).producer_id
        small = batch([Sample(b"k", b"v", (), TIME)], producer=Producer(number, 0, 0))
        waiting = fetch_request("plain", 0, bytes_min=1, wait_ms=30_000)
        waiting.topics += fetch_request("synced", 0).topics  # a fetch of one partition without a session takes a shorter path
        before = len(traced.taken())
        consumer.send(waiting, 11)
        # The turn in which it begins to wait must have ended: its last steps are also those of a produce.
        until(lambda: END_OF_TURN in from_first(traced.taken()[before:], PARK), "the fetch waits")
        parked = len(traced.taken())
        request = produce_request("plain", small, acks=1)
        producer.send(request, 8)
        assert producer.receive(request).responses[0].partition_responses[0].error_code == 0
        assert any(topic.partitions[0].records for topic in consumer.receive(waiting).responses)
        answered = len(traced.taken())
        assert produce(producer, "synced", batch([Sample(b"k", bytes(200_000), (), TIME)])).error_code == 0
        assert fetch(producer, "synced", 0).size > 200_000
        assert produce(producer, "stamped", batch([Sample(b"k", b"v", (), TIME)])).error_code == 0
    taken = traced.taken()
    assert [step for step in dict.fromkeys([*steps(PRODUCE), *steps(FETCH)]) if step not in taken and step[0] not in COMPILED] == []
    woken = steps(FETCH).index(("broker/event_wiring.py", "EventWiring._complete"))
    assert in_order(taken[before:parked], steps(FETCH)[:woken])
    assert in_order(taken[parked:answered], steps(PRODUCE))
    completed = taken.index(("broker/event_wiring.py", "EventWiring._complete"), parked)
    assert in_order(taken[completed:answered], steps(FETCH)[woken:])


def from_first(taken: list[Step], step: Step) -> list[Step]:
    """The steps from the first one of this kind on."""
    return taken[taken.index(step) :] if step in taken else []


def in_order(taken: list[Step], expected: list[Step]) -> bool:
    """Whether the expected steps that were taken were first taken in their order."""
    first = [taken.index(step) for step in dict.fromkeys(expected) if step in taken]
    return len(first) > 5 and first == sorted(first)


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= LINES_MAX


def test_the_list_of_test_folders_is_whole() -> None:
    rows = re.findall(r"^\| (`.*?) \|", read(CHECKOUT / "tests" / "README.md"), re.M)
    listed = {name for row in rows for name in re.findall(r"`(\w+)/`", row)}
    assert listed == {path.name for path in (CHECKOUT / "tests").iterdir() if any(path.glob("**/*.py")) or path.name == "golden"}
