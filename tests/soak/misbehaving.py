"""Connections that misbehave: incomplete requests, one byte at a time, responses that are not read, members that disappear.

`suspects` has the local ports of the connections that the broker may warn about; a warning about another one is a fault.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable

from kafka.protocol.consumer import FetchRequest, JoinGroupRequest
from kafka.protocol.metadata import ApiVersionsRequest

from tests.soak.ledgers import Ledgers
from tests.soak.plan import REPEATED, TOPICS
from tests.support.raw import RawConnection
from tests.support.raw_admin import producer_id
from tests.support.raw_log import Producer, batch, fetch_request, produce
from tests.support.records import numbered

# ApiVersions of version 0, correlation id 7, client id "slow".
API_VERSIONS_FRAME = struct.pack(">ihhih4s", 14, 18, 0, 7, 4, b"slow")
HALF_FRAME = struct.pack(">ihhi", 300_000, 0, 8, 1) + bytes(20_000)
GARBAGE = struct.pack(">ihhi", 100, 999, 77, 1) + bytes(92)


class MisbehavingConnections:
    """`act` performs one action and returns when it is over."""

    def __init__(self, address: str, ledgers: Ledgers, chance: random.Random, stop: threading.Event, wait_s_max: float, first: int) -> None:
        """`first`: the number of the action to begin with."""
        host, _, port = address.rpartition(":")
        self._at = host, int(port)
        self._address = address
        self._ledgers = ledgers
        self._chance = chance
        self._stop = stop
        self.suspects: set[int] = set()
        self._acts: tuple[tuple[str, Callable[[], None]], ...] = (
            ("half requests", self._half),
            ("requests of one byte at a time", self._dribble),
            ("responses that are not read", self._never_read),
            ("long polls that are abandoned", self._leave_poll),
            ("members that disappear", self._vanish),
            ("connections that are opened and closed", self._come_and_go),
            ("malformed requests", self._malformed),
            ("batches that are sent repeatedly", self._twice),
        )
        self._turn = first
        self._wait_s_max = wait_s_max

    @property
    def names(self) -> list[str]:
        """The names of all actions."""
        return [name for name, _ in self._acts]

    def act(self) -> None:
        """Perform the next action."""
        name, act = self._acts[self._turn % len(self._acts)]
        self._turn += 1
        act()
        self._ledgers.counts.add(name)

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._at, 30)

    def _half(self) -> None:
        with self._connect() as connection:
            self.suspects.add(connection.getsockname()[1])
            connection.sendall(HALF_FRAME)
            self._stop.wait(self._chance.uniform(1, self._wait_s_max))

    def _dribble(self) -> None:
        with self._connect() as connection:
            self.suspects.add(connection.getsockname()[1])
            for byte in API_VERSIONS_FRAME:
                connection.sendall(bytes([byte]))
                if self._stop.wait(self._wait_s_max / 30):
                    return
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(size, socket.MSG_WAITALL)
            assert struct.unpack_from(">ih", answer) == (7, 0), answer[:20]

    def _never_read(self) -> None:
        with RawConnection(self._address, client_id="never reads") as connection:
            for _ in range(50):
                topic = self._chance.choice(TOPICS)
                connection.send(fetch_request(topic.name, self._ledgers.partitions[topic.name, 0].log_start, bytes_max=1 << 20), 11)
            self._stop.wait(self._chance.uniform(1, 2 * self._wait_s_max / 3))

    def _leave_poll(self) -> None:
        with RawConnection(self._address, client_id="leaves") as connection:
            for number in range(4):
                partition = FetchRequest.FetchTopic.FetchPartition(
                    partition=number, fetch_offset=self._ledgers.partitions["sized", number].position, partition_max_bytes=1 << 20)
                topics = [FetchRequest.FetchTopic(topic="sized", partitions=[partition])]
                connection.send(FetchRequest(max_wait_ms=60_000, min_bytes=1 << 30, max_bytes=1 << 30, session_id=0, session_epoch=0,
                                             topics=topics, forgotten_topics_data=[]), 11)
            self._stop.wait(self._chance.uniform(0.1, 5))

    def _vanish(self) -> None:
        """A member of a new group that does not leave it."""
        protocols = JoinGroupRequest.JoinGroupRequestProtocol
        group = f"visitor-{self._chance.randrange(10**9)}"
        with RawConnection(self._address, client_id="vanishes") as connection:
            for _ in range(3):
                connection.send(JoinGroupRequest(
                    group_id=group, session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="", protocol_type="consumer",
                    protocols=[protocols(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]), 3)
            connection.receive_frame()

    def _come_and_go(self) -> None:
        for _ in range(20):
            self._connect().close()
        connections = [self._connect() for _ in range(20)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed with a reset
            connection.close()

    def _malformed(self) -> None:
        with self._connect() as connection:
            self.suspects.add(connection.getsockname()[1])
            connection.sendall(GARBAGE)
            assert connection.recv(1) == b"", "the broker answered a malformed request"

    def _twice(self) -> None:
        """An idempotent batch that is sent again gets the same offset. The topic is not in the ledgers."""
        with RawConnection(self._address, client_id="repeats") as connection:
            given = producer_id(connection)
            data = batch(numbered(3, base_timestamp=time.time_ns() // 1_000_000), producer=Producer(given.producer_id, 0, 0))
            answers = [produce(connection, REPEATED.name, data) for _ in range(3)]
            assert {(answer.error_code, answer.base_offset) for answer in answers} == {(0, answers[0].base_offset)}, answers
            assert connection.call(ApiVersionsRequest(client_software_name="soak", client_software_version="1"), 3).error_code == 0


