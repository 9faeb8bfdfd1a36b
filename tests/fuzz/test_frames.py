"""Corrupted frames of every API and version sent to a broker process: it keeps running and serving others, with bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from tests.fuzz import frames
from tests.fuzz.memory import peak, resident
from tests.fuzz.sockets import Peer, send_all
from tests.support.broker import BrokerProcess
from tests.support.examples import examples
from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised, create_topic, find_coordinator, until_leaders
from tests.support.raw_log import batch, fetch, produce, topic_id
from tests.support.records import numbered, numbers
from tests.support.server import Server
from tests.wire.test_schemas import DECLARED
from txbroker.wire.schema import Request

pytestmark = pytest.mark.process

MIB = 1 << 20
# The limits of the broker's memory, at its peak and at the end. It has about 50 MiB after the start.
PEAK_MAX = 250 * MIB
KEPT_MAX = 150 * MIB
TOPIC = "behaved"
CONNECTIONS = 60  # at once


class Watched:
    """A broker that receives corrupted frames, and another client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.steady = RawConnection(server.address, client_id="behaved")
        requests = {cls.api_key: cls for cls in DECLARED.values() if issubclass(cls, Request)}
        ranges = advertised(server)
        self.pairs = [(requests[key], version) for key, (low, high) in ranges.items() for version in range(low, high + 1)]
        self._count = 0
        self._log = server.log_size()

    def fire(self, each: Sequence[bytes]) -> list[Peer]:
        """Send these, each over its own connection; the other client must be served."""
        peers = send_all(self.server, each, self._check_the_steady_one)
        self._check_the_steady_one()
        self._check_log({peer.port for peer in peers})
        return peers

    def _check_the_steady_one(self) -> None:
        assert self.server.running, self.server.log_tail()
        assert self.steady.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0
        assert produce(self.steady, TOPIC, batch(numbered(1, start=self._count))).error_code == 0
        assert numbers(fetch(self.steady, TOPIC, self._count).records)[:1] == [self._count]
        self._count += 1

    def _check_log(self, ports: set[int]) -> None:
        """No traceback, no error, and at most one line for each connection."""
        log = self.server.log(self._log)
        self._log = self.server.log_size()
        assert "Traceback (most recent call last)" not in log, log[-8000:]
        assert " ERROR " not in log, log[-8000:]
        lines = Counter(int(port) for port in re.findall(r"closing the connection of 127\.0\.0\.1:(\d+)", log))
        assert lines.keys() <= ports, "a connection that sent nothing wrong was closed"
        assert max(lines.values(), default=0) <= 1, lines


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    server: Server = BrokerProcess(Path(tmp_path_factory.mktemp("frames")), {"offsets.topic.num.partitions": "3"})
    server.start()
    try:
        for topic in (*frames.TOPICS, TOPIC):
            create_topic(server, topic, 2, {"cleanup.policy": "compact"} if topic == "compacted" else {"retention.ms": "-1"})
            until_leaders(server, topic, 2)
        find_coordinator(server, frames.GROUP)
        watched = Watched(server)
        frames.TOPIC_IDS[:] = [topic_id(watched.steady, topic).bytes for topic in frames.TOPICS]
        yield watched
        assert resident(server.pid) < KEPT_MAX, f"{resident(server.pid) >> 20} MiB at the end"
        assert peak(server.pid) < PEAK_MAX, f"{peak(server.pid) >> 20} MiB"
        watched.steady.close()
        assert server.stop() == 0
    finally:
        server.close()


def some_frames(watched: Watched, pick: frames.Pick, pair: tuple[type[Request], int] | None = None) -> bytes:
    """Some frames for one connection, most of them corrupted."""
    sent = []
    for number in range(1 + pick(3)):
        cls, version = pair or watched.pairs[pick(len(watched.pairs))]
        frame = frames.request_frame(cls, version, number, pick)
        sent.append(frames.mutated_frame(frame, pick) if pick(4) else frame)
    return b"".join(sent)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_api_and_version(watched: Watched, seed: int) -> None:
    random = Random(seed)
    each = [some_frames(watched, random.randrange, pair) for pair in watched.pairs]
    answered = closed = 0
    for start in range(0, len(each), CONNECTIONS):
        for peer in watched.fire(each[start : start + CONNECTIONS]):
            answered += peer.frames() > 0
            closed += peer.closed
    assert answered > len(each) // 5, "most requests were refused early, so that little was tested"
    assert closed > len(each) // 5


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=300), min_size=CONNECTIONS // 2, max_size=CONNECTIONS))
def test_any_frames(watched: Watched, choices: list[bytes]) -> None:
    watched.fire([some_frames(watched, frames.pick_from(data)) for data in choices])


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=CONNECTIONS // 2, max_size=CONNECTIONS))
def test_random_bytes(watched: Watched, each: list[bytes]) -> None:
    watched.fire(each)


def test_the_topic_of_the_other_client_is_complete(watched: Watched) -> None:
    answer = watched.steady.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]), 8)
    assert answer.topics[0].error_code == 0
    found = numbers(fetch(watched.steady, TOPIC, 0).records)
    assert found == list(range(len(found)))
