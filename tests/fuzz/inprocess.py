"""A whole broker in this process, without sockets, threads and real time: frames go through the real handlers.

The logs are on a disk in memory; the test advances time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from tests.api.responses import joined
from tests.fuzz import frames
from tests.fuzz.frames import Served
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from txbroker.api.request_context import Session
from txbroker.broker.components import Components
from txbroker.broker.environment import Environment
from txbroker.broker.service import Broker
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.connection.protocol import Connection
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.schema import Request

OVERRIDES = ("listeners=PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0",
             "log.segment.bytes=65536", "fetch.max.bytes=1048576")
DATA = "/data"


class Bug(AssertionError):
    """The broker did something that no input may cause."""


class _Transport:
    """The transport of a connection, which records that it was closed."""

    def __init__(self, number: int) -> None:
        self.session = Session(peer_host="127.0.0.1", peer_port=40_000, local_host="127.0.0.1", local_port=9092, listener="PLAINTEXT",
                               number=number)
        self.closed = self.disconnecting = False

    def limit_frames(self, high: int | None, low: int = 8) -> None:
        pass

    def expect_login(self, message_bytes_max: int) -> None:
        pass

    def logged_in(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def loseConnection(self) -> None:
        self.closed = self.disconnecting = True


class _Watch(logging.Handler):
    """Collects the log records of the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)


class InProcessBroker:
    """`InProcessBroker()` starts it, `close` stops it. `send` takes frames as received. `change` may replace parts of its environment."""

    def __init__(self, change: Callable[[Environment], Environment] = lambda same: same, *, overrides: Sequence[str] = ()) -> None:
        self.reactor = FakeReactor()
        self._watch = _Watch()
        logger = logging.getLogger("txbroker")
        logger.addHandler(self._watch)
        logger.propagate = False
        config = load_broker_config(parse_overrides([*OVERRIDES, f"log.dirs={DATA}", *overrides], {}))
        self._broker = Broker(config, change(fake_environment(self.reactor, MemoryDisk(), Random(1))), [DATA], self._fatal)
        self._await(self._broker.start())
        self._numbers = 0
        self._make_topics()

    @cached_property
    def served(self) -> Served:
        """The requests that it serves; makes the handlers of all."""
        registry = self.components.registry
        return Served(registry, registry.requests())

    @property
    def components(self) -> Components:
        """Of the broker, which has started."""
        assert self._broker.components is not None
        return self._broker.components

    def _fatal(self, why: str) -> None:
        raise Bug(f"the broker wants to stop: {why}")

    def _await(self, done: Deferred[Any]) -> None:
        results: list[Any] = []
        done.addBoth(results.append)
        for _ in range(10_000):
            if results:
                break
            self.reactor.advance(0.001)
        assert results, "the Deferred did not fire"
        if isinstance(results[0], Failure):
            results[0].raiseException()

    def _connect(self) -> tuple[Connection, _Transport]:
        self._numbers = getattr(self, "_numbers", 0) + 1
        connection = self.reactor.port.factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40_000))
        transport = _Transport(self._numbers)
        connection.makeConnection(transport)
        return connection, transport

    def _make_topics(self) -> None:
        configs = {"compacted": {"cleanup.policy": "compact"},
                   "stamped": {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"}}
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[],
                           configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.get(name, {}).items()])
            for name in frames.TOPICS
        ]
        (created,) = self.exchange([self.frame(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7)])
        frames.TOPIC_IDS[:] = [topic.topic_id for topic in created.topics]
        self.exchange([self.frame(FindCoordinatorRequest(coordinator_keys=[frames.GROUP]), 4)])

    def frame(self, message: Request, version: int) -> tuple[type[Request], int, bytes]:
        """A request as `exchange` takes it."""
        body = encode_bytes(message, version)
        return type(message), version, request_prefix(type(message), version, 1, "tests", len(body)) + body

    def exchange(self, requests: list[tuple[type[Request], int, bytes]], wait_s: float = 2.0) -> list[Any]:
        """Send valid requests; their responses, which must be valid."""
        output, closed = self.send([data for _, _, data in requests], wait_s)
        answers = []
        for cls, version, _ in requests:
            size = int.from_bytes(output[:4], "big")
            skip = 9 if version in cls.flexible and cls.api_key != 18 else 8
            answers.append(decode(frames.readable_answer(cls), version, output[skip : size + 4]))
            output = output[size + 4 :]
        assert not output and not closed
        return answers

    def send(self, received: list[bytes], wait_s: float = 0.01) -> tuple[bytes, bool]:
        """Send frames on a new connection; the output within `wait_s`, and whether it was closed. Raises Bug.

        Frames start with their size, which is ignored.
        """
        self._watch.lines.clear()
        connection, transport = self._connect()
        output: list[bytes] = []
        frames = deque(data for data in received if len(data) >= 12)  # the transport refuses shorter ones
        for step_s in (0.0, *[wait_s / 4] * 4):
            self.reactor.advance(step_s)
            self._take(connection, output)
            while frames and not transport.closed and connection.frame_received(memoryview(bytearray(frames[0][4:]))):
                frames.popleft()
                self.reactor.advance(0)
                self._take(connection, output)
        closed = transport.closed
        connection.connectionLost(Failure(ConnectionError()))
        self.reactor.advance(0)
        self._check_log(closed)
        return b"".join(output), closed

    def _take(self, connection: Connection, output: list[bytes]) -> None:
        promised = connection.output_bytes
        data = joined(connection.take_output())
        if len(data) != promised:
            raise Bug(f"{promised} bytes of output were promised, {len(data)} came")
        position = 0
        while position < len(data):
            position += 4 + int.from_bytes(data[position : position + 4], "big", signed=True)
        if position != len(data):
            raise Bug("an answer's size is not that of its frame")
        output.append(data)

    def _check_log(self, closed: bool) -> None:
        """Check the log: at most one line for a closed connection, and no traceback."""
        formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        lines = [line for line in self._watch.lines if line.levelno >= logging.WARNING]
        bugs = [line for line in lines if line.exc_info or line.levelno >= logging.ERROR]
        about = [line for line in lines if line.name == "txbroker.connection"]
        if bugs or len(about) > closed:
            raise Bug("\n".join(formatter.format(line) for line in bugs or about))

    def close(self) -> None:
        """Stop the broker."""
        try:
            self._await(self._broker.stop())
        finally:
            logging.getLogger("txbroker").removeHandler(self._watch)
