"""The calls that a request of a real client costs: `python -m bench walk [--list] [REQUEST ...]`.

A whole broker runs in this process, with real sockets and files, and this program turns its reactor. From `ServerTransport.doRead`, which
receives the request, to the call that sends the last bytes, the table counts Python's calls of functions of txbroker, the modules that
they are in, and how often a call is in another module than the call before it. Compiled functions are not Python's calls and are not
counted. Functions that txbroker generates at its start count as one module.

Each request is repeated, as a client repeats it; the numbers are those of the repetition with the median of calls.
"""

from __future__ import annotations

import argparse
import select
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bench.real_requests import Consumer, Producer, check
from bench.requests import BrokerClient, Refused, frame
from tests.support.running_reactor import RunningReactor
from txbroker.broker.service import Broker
from txbroker.broker_service import _environment
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.garbage_collection import GarbageCollection
from txbroker.transport.server import ServerTransport
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.schema import Request

WARMUP = 20
REPETITIONS = 9
HOST = "127.0.0.1"
PARTITIONS = 12
TRANSACTION = 1  # the key type of FindCoordinator
GENERATED = "(generated)"
_FIRST = ServerTransport.doRead.__code__
_SENDS = frozenset(("send", "sendmsg", "sendfile"))


@dataclass(frozen=True)
class Call:
    """One call: the module, the function, and how many calls of txbroker it is within."""

    module: str
    function: str
    depth: int


class Walk:
    """The calls from the first `doRead` to the last call that sends, while the block runs."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._depths: dict[FrameType, int] = {}
        self._until_sent = 0
        self._begun = False

    def __enter__(self) -> Walk:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._depths.clear()
        del self.calls[self._until_sent :]

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._begun = self._begun or frame.f_code is _FIRST
            module = _module(frame) if self._begun else None
            if module is not None:
                self.calls.append(Call(module, frame.f_code.co_qualname, len(self._depths)))
                self._depths[frame] = len(self.calls)
        elif event == "return":
            self._depths.pop(frame, None)
        elif event == "c_call" and self._begun and argument.__name__ in _SENDS:
            self._until_sent = len(self.calls)

    @property
    def modules(self) -> int:
        return len({call.module for call in self.calls})

    @property
    def changes(self) -> int:
        """How often a call is in another module than the call before it."""
        return sum(one.module != other.module for one, other in zip(self.calls, self.calls[1:], strict=False))


def _module(frame: FrameType) -> str | None:
    """The module of txbroker that the function is in, None for any other function."""
    name: str = frame.f_globals.get("__name__", "")
    if name.startswith("txbroker."):
        return name.removeprefix("txbroker.").replace(".", "/")
    file = frame.f_code.co_filename
    return GENERATED if file.startswith("<txbroker ") or (file == "<string>" and not name) else None


class InProcess:
    """A broker with the defaults of `txbroker run`, whose reactor the caller turns. Its timers never fire."""

    def __init__(self, directory: Path) -> None:
        config = load_broker_config(parse_overrides([f"listeners=PLAINTEXT://{HOST}:0", f"log.dirs={directory}"], {}))
        self._running = RunningReactor()
        try:
            environment = _environment(self._running.reactor, config, GarbageCollection())
            self._broker = Broker(config, environment, [str(directory)], self._fatal)
            self._finished(self._broker.start(), "the broker has started")
        except BaseException:
            self._running.close()
            raise
        ((_, self.port),) = self._broker.bound.values()

    def _fatal(self, why: str) -> None:
        raise RuntimeError(f"the broker stops: {why}")

    def _finished(self, done: Deferred[Any], what: str) -> None:
        results: list[Any] = []
        done.addBoth(results.append)
        self._running.until(lambda: results, what)
        if isinstance(results[0], Failure):
            results[0].raiseException()

    def connect(self) -> BrokerClient:
        return BrokerClient(f"{HOST}:{self.port}")

    def call(self, client: BrokerClient, request: Request) -> Any:
        """The response to a request that is not counted."""
        client.socket.sendall(frame(request))
        self._running.until(lambda: _answered(client), "the broker responds")
        return client.answer(type(request))

    def send(self, client: BrokerClient, request: Request) -> None:
        """Let the broker receive a request whose response comes later."""
        client.socket.sendall(frame(request))
        self._running.turns()

    def walk(self, requests: Mapping[BrokerClient, Request], waiting: Sequence[BrokerClient] = ()) -> Walk:
        """The walk of requests that are received in one turn, until their clients have responses, and those that wait have theirs."""
        for client, request in requests.items():
            client.socket.sendall(frame(request))
        with Walk() as walk:
            self._running.until(lambda: _answered(*requests, *waiting), "the broker responds")
        return walk

    def topic(self, name: str) -> bytes:
        """Create a topic; its id."""
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        with self.connect() as client:
            (created,) = self.call(client, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
        check(created.error_code, f"creating {name}")
        topic_id: bytes = created.topic_id
        return topic_id

    def producer(self, topic_id: bytes, transactional_id: str | None = None) -> Producer:
        """A producer with an id of its own; a transactional one finds its coordinator before."""
        with self.connect() as client:
            if transactional_id is not None:
                wanted = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
                self._until_no_error(lambda: self.call(client, wanted).coordinators[0])
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            made = self._until_no_error(lambda: self.call(client, request))
        return Producer(topic_id, made.producer_id, made.producer_epoch, transactional_id)

    def _until_no_error(self, call: Callable[[], Any]) -> Any:
        """The first answer without an error: the topic of the coordinator is created at its first use."""
        answer: Any = None

        def is_ready() -> bool:
            nonlocal answer
            answer = call()
            return not answer.error_code

        self._running.until(is_ready, "the coordinator is ready")
        return answer

    def close(self) -> None:
        try:
            self._finished(self._broker.stop(), "the broker has stopped")
        finally:
            self._running.close()


def _answered(*clients: BrokerClient) -> bool:
    sockets = [client.socket for client in clients]
    return len(select.select(sockets, [], [], 0)[0]) == len(sockets)


@contextmanager
def in_process() -> Iterator[InProcess]:
    """A broker with a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="txbroker-walk-") as directory:
        broker = InProcess(Path(directory))
        try:
            yield broker
        finally:
            broker.close()


def _produces(broker: InProcess, partitions: int = 1, transactional_id: str | None = None) -> Iterator[Walk]:
    producer = broker.producer(broker.topic(f"produce-{partitions}-{transactional_id}"), transactional_id)
    with broker.connect() as client:
        while True:
            walk = broker.walk({client: producer.request(partitions)})
            producer.check(client.answer(ProduceRequest))
            yield walk


def _produces_together(broker: InProcess) -> Iterator[Walk]:
    topic_id = broker.topic("produce-together")
    with broker.connect() as one, broker.connect() as other:
        producers = {one: broker.producer(topic_id), other: broker.producer(topic_id)}
        while True:
            walk = broker.walk({client: producer.request(1) for client, producer in producers.items()})
            for client, producer in producers.items():
                producer.check(client.answer(ProduceRequest))
            yield walk


def _fetches(broker: InProcess, partitions: int = PARTITIONS, *, session: bool) -> Iterator[Walk]:
    """Of one partition with a new record."""
    topic_id = broker.topic(f"fetch-{partitions}-{session}")
    producer, consumer = broker.producer(topic_id), Consumer(topic_id, partitions, session=session)
    with broker.connect() as client, broker.connect() as producing:
        while True:
            producer.check(broker.call(producing, producer.request(1)))
            walk = broker.walk({client: consumer.request()})
            _one_partition(consumer.take(client.answer(FetchRequest)))
            yield walk


def _woken(broker: InProcess) -> Iterator[Walk]:
    """A produce that completes a waiting fetch."""
    topic_id = broker.topic("woken")
    producer, consumer = broker.producer(topic_id), Consumer(topic_id, PARTITIONS, session=True)
    with broker.connect() as client, broker.connect() as producing:
        producer.check(broker.call(producing, producer.request(1)))
        consumer.take(broker.call(client, consumer.request()))
        while True:
            broker.send(client, consumer.request())
            walk = broker.walk({producing: producer.request(1)}, [client])
            producer.check(producing.answer(ProduceRequest))
            _one_partition(consumer.take(client.answer(FetchRequest)))
            yield walk


def _one_partition(read: int) -> None:
    if read != 1:
        raise Refused(f"a fetch returned records of {read} partitions instead of one")


_PRODUCE = "a produce (acks=all, idempotent, snappy, one record) to"
WALKS: Mapping[str, tuple[str, Callable[[InProcess], Iterator[Walk]]]] = {
    "produce": (f"{_PRODUCE} one partition", _produces),
    "produce-together": ("two such produces of two clients in one turn of the poller", _produces_together),
    "produce-12": (f"{_PRODUCE} {PARTITIONS} partitions", partial(_produces, partitions=PARTITIONS)),
    "produce-transactional": (f"{_PRODUCE} one partition in a transaction", partial(_produces, transactional_id="walk")),
    "fetch": ("a fetch of one partition without a session", partial(_fetches, partitions=1, session=False)),
    "fetch-12": (f"a fetch of {PARTITIONS} partitions without a session, one has a record", partial(_fetches, session=False)),
    "fetch-session": (f"an incremental fetch in a session of {PARTITIONS} partitions, one has a record", partial(_fetches, session=True)),
    "fetch-woken": (f"the produce to one partition, and the waiting fetch of a session of {PARTITIONS} that it completes", _woken),
}


def measure(broker: InProcess, name: str) -> Walk:
    """The walk with the median of calls, of some repetitions after others that are not counted."""
    walks = list(islice(WALKS[name][1](broker), WARMUP, WARMUP + REPETITIONS))
    return sorted(walks, key=lambda walk: len(walk.calls))[REPETITIONS // 2]


def table(walks: Mapping[str, Walk]) -> str:
    """A line for each request."""
    width = max(map(len, walks))
    lines = [f"{'request':<{width}}  calls  modules  changes"]
    lines += [f"{name:<{width}}  {len(walk.calls):>5}  {walk.modules:>7}  {walk.changes:>7}" for name, walk in walks.items()]
    return "\n".join(lines)


def listing(walk: Walk) -> str:
    """The calls in their order; calls within a call are indented."""
    return "\n".join(f"{call.module:<32} {'  ' * call.depth}{call.function}" for call in walk.calls)


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench walk", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog="\n".join(["requests:", *(f"  {name:<22} {what}" for name, (what, _) in WALKS.items())]),
    )  # fmt: skip
    parser.add_argument("requests", nargs="*", metavar="REQUEST", help="without names, all of them")
    parser.add_argument("--list", action="store_true", help="also print the calls in their order")
    options = parser.parse_args(arguments)
    unknown = set(options.requests) - set(WALKS)
    if unknown:
        parser.error(f"no such request: {', '.join(sorted(unknown))}; the requests are {', '.join(WALKS)}")
    with in_process() as broker:
        walks = {name: measure(broker, name) for name in options.requests or WALKS}
    if options.list:
        for name, walk in walks.items():
            print(f"{name}: {WALKS[name][0]}\n{listing(walk)}\n")
    print(table(walks))
    return 0
