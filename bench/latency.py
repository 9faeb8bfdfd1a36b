"""The latency from a produce to waiting consumers: one, and a thousand."""

from __future__ import annotations

import resource
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench import requests
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter
from bench.requests import BrokerClient, frame
from tests.support.server import Server
from txbroker.wire.messages.produce import ProduceRequest

MESSAGES = 3000
WAITERS = 1000
ROUNDS = 15
RECORD_BYTES = 100
FETCHED_MAX = 1 << 20
WAIT_MS = 60_000
PARK_S = 0.0002  # from sending the fetch to sending the record that it waits for
PARK_ALL_S = 0.4


@contextmanager
def _e2e(server: Server, settings: Settings) -> Iterator[Measure]:
    name = "e2e"
    with BrokerClient(server.address) as producer, BrokerClient(server.address) as consumer:
        topic_id = producer.create_topic(name, 1)
        send = frame(requests.produce(topic_id, 0, requests.batch(1, RECORD_BYTES)))

        def measure(messages: int) -> Sample:
            offset = producer.end_offset(name, 0)
            latencies = []
            cpu = CpuMeter(server.pid)
            for _ in range(messages):
                consumer.socket.sendall(frame(requests.fetch(topic_id, 0, offset, FETCHED_MAX, WAIT_MS)))
                time.sleep(PARK_S)
                start = time.perf_counter()
                producer.socket.sendall(send)
                answer = consumer.receive()
                latencies.append(time.perf_counter() - start)
                producer.receive()
                requests.check_fetched(answer)
                offset += 1
            return {**_quantiles(latencies), "CPU per message": cpu.seconds() / messages * 1e6}

        messages = int(MESSAGES * settings.scale)
        measure(int(max(messages, 2000 * settings.first_warmup_s * 0.5)))
        try:
            yield lambda: measure(messages)
        finally:
            producer.delete_topic(name)


def _quantiles(latencies: list[float]) -> Sample:
    ordered = sorted(latencies)
    return {"p50": ordered[len(ordered) // 2] * 1e3, "p99": ordered[len(ordered) * 99 // 100] * 1e3}


@contextmanager
def _longpoll(server: Server, settings: Settings) -> Iterator[Measure]:
    name = "longpoll"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        producer = stack.enter_context(BrokerClient(server.address))
        topic_id = producer.create_topic(name, 1)
        waiters = [stack.enter_context(BrokerClient(server.address)) for _ in range(WAITERS)]
        send = frame(requests.produce(topic_id, 0, requests.batch(1, RECORD_BYTES)))
        wake = _waker(waiters)

        def measure(rounds: int) -> Sample:
            offset = producer.end_offset(name, 0)
            firsts, lasts = [], []
            for _ in range(rounds):
                request = frame(requests.fetch(topic_id, 0, offset, FETCHED_MAX, WAIT_MS))
                for waiter in waiters:
                    waiter.socket.sendall(request)
                time.sleep(PARK_ALL_S)
                times = wake(producer, send)
                firsts.append(times[0])
                lasts.append(times[-1])
                offset += 1
            return {"first": _quantiles(firsts)["p50"], "last": _quantiles(lasts)["p50"]}

        rounds = max(3, int(ROUNDS * settings.scale))
        measure(rounds)
        try:
            yield lambda: measure(rounds)
        finally:
            producer.delete_topic(name)


def _waker(waiters: list[BrokerClient]) -> Callable[[BrokerClient, bytes], list[float]]:
    """Returns a function that sends a produce and returns the seconds until each waiter had its response, in ascending order."""
    sockets = {waiter.socket.fileno(): waiter.socket for waiter in waiters}
    poll = select.epoll()
    for fd in sockets:
        poll.register(fd, select.EPOLLIN)

    def wake(producer: BrokerClient, request: bytes) -> list[float]:
        answers = dict.fromkeys(sockets, b"")
        times: list[float] = []
        start = time.perf_counter()
        producer.socket.sendall(request)
        while len(times) < len(sockets):
            for fd, _ in poll.poll(30):
                answers[fd] += sockets[fd].recv(65536)
                if requests.is_whole(answers[fd]):
                    times.append(time.perf_counter() - start)
        producer.answer(ProduceRequest)
        for answer in answers.values():
            requests.check_fetched(answer[4:])
        return times

    return wake


BENCHES = (
    Bench(
        "e2e",
        "one 100-byte record at a time, from the producer's send to the receive of a waiting consumer",
        (
            Figure("p50", "ms", less=True, digits=3, target=0.6),
            Figure("p99", "ms", less=True, digits=3, target=0.7),
            Figure("CPU per message", "µs", less=True),
        ),
        _e2e,
    ),
    Bench(
        "longpoll",
        f"{WAITERS} waiting fetches, completed by one produce",
        (Figure("first", "ms", less=True, digits=2, target=0.6), Figure("last", "ms", less=True, digits=1, target=0.5)),
        _longpoll,
    ),
)
