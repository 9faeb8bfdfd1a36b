"""Partitions, ten of them active: the cost of requests, memory and starts. Then two hundred of them: requests for one partition in a turn
are fewer, and less is done for them together."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bench import requests
from bench.measures import Sample, Settings
from bench.process_tree import CpuMeter, cpu_seconds, rss_mb
from bench.rawload import Load, run
from bench.requests import BrokerClient, frame
from bench.scale.sweep import Curve, ServerSweep
from tests.support.server import HOST, Server

ACTIVE = 10
SPREAD = 200
OF_A_TOPIC = 10
CONNECTIONS = 16
DEPTH = 8
IDLE_S = 3.0
START_TIMEOUT_S = 300.0

Place = tuple[str, bytes, int]
"""A partition: topic, topic id, number."""


class _Partitions:
    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._settings = settings
        self._places: list[Place] = []
        self._loads: dict[str, Load] = {}
        server.start_timeout_s = START_TIMEOUT_S

    def grow(self, size: int) -> None:
        with BrokerClient(self._server.address, timeout_s=300) as client:
            while len(self._places) < size:
                name = f"scale-{len(self._places)}"
                topic_id = client.create_topic(name, OF_A_TOPIC)
                self._places += [(name, topic_id, number) for number in range(OF_A_TOPIC)]
        # The active ones are chosen at random, and are the same after a restart.
        active = random.Random(size).sample(self._places, ACTIVE)
        self._loads = {**self._produce_and_fetch(active), "metadata": self._load([frame(requests.metadata(name)) for name, _, _ in active])}
        if size >= SPREAD:
            spread = self._produce_and_fetch(random.Random(size).sample(self._places, SPREAD))
            self._loads |= {f"{name} to {SPREAD}": load for name, load in spread.items()}
        for load in self._loads.values():
            run(replace(load, seconds=self._settings.first_warmup_s / 2))

    def _produce_and_fetch(self, active: Sequence[Place]) -> dict[str, Load]:
        return {
            "produce": self._load([frame(requests.produce(topic_id, n, requests.batch(1, 100))) for _, topic_id, n in active]),
            "fetch": self._load([frame(requests.fetch(topic_id, n, 0, 1)) for _, topic_id, n in active]),
        }

    def _load(self, frames: Sequence[bytes]) -> Load:
        """Every connection has its own order of requests."""
        chance = random.Random(1)
        shuffled = [chance.sample(frames, len(frames)) for _ in range(CONNECTIONS)]
        return Load(HOST, self._server.port, shuffled, CONNECTIONS, DEPTH, self._settings.seconds, self._settings.warmup_s)

    def measure(self) -> Sample:
        cpu = CpuMeter(self._server.pid)
        time.sleep(IDLE_S * self._settings.scale)
        sample = {"memory": rss_mb(self._server.pid), "idle CPU": cpu.share() * 1e3}
        for name, load in self._loads.items():
            result = run(load, self._server.pid)
            assert result.cpu_us_per_answer is not None
            sample[f"{name}/s"] = result.answers_per_s
            sample[f"CPU per {name}"] = result.cpu_us_per_answer
        return sample

    def afterwards(self) -> Sample:
        """Measure starts; a start ends when the last partition accepts a record."""
        self._server.stop(120)
        clean_s, first_s = self._start()
        cpu_s = cpu_seconds(self._server.pid)
        self._server.kill()
        killed_s, _ = self._start()
        return {"start": clean_s, "first answer": first_s, "CPU of a start": cpu_s, "start after kill -9": killed_s}

    def _start(self) -> tuple[float, float]:
        begin = time.monotonic()
        self._server.start()
        first_s = time.monotonic() - begin
        _, topic_id, number = self._places[-1]
        deadline = begin + START_TIMEOUT_S
        with BrokerClient(self._server.address) as client:
            while not client.takes(topic_id, number):
                if time.monotonic() > deadline:
                    raise TimeoutError("a partition accepts no records after a start")
                time.sleep(0.005)
        return time.monotonic() - begin, first_s


@contextmanager
def _subject(server: Server, settings: Settings) -> Iterator[_Partitions]:
    yield _Partitions(server, settings)


SWEEP = ServerSweep(
    "partitions",
    f"Partitions (topics of {OF_A_TOPIC}), {ACTIVE} of them active, then {SPREAD}: {CONNECTIONS} connections x {DEPTH} requests in flight, "
    "one record each, each for another partition than the one before",
    "partitions",
    (10, 100, 1000, 5000),
    (
        Curve("memory", "MB", 0),
        Curve("idle CPU", "ms/s"),
        Curve("produce/s", "requests/s", 0),
        Curve("CPU per produce", "µs", growth_max=1.3),
        Curve("fetch/s", "requests/s", 0),
        Curve("CPU per fetch", "µs", growth_max=1.3),
        Curve("metadata/s", "requests/s", 0),
        Curve("CPU per metadata", "µs", growth_max=1.3),
        Curve(f"produce to {SPREAD}/s", "requests/s", 0),
        Curve(f"CPU per produce to {SPREAD}", "µs"),
        Curve(f"fetch to {SPREAD}/s", "requests/s", 0),
        Curve(f"CPU per fetch to {SPREAD}", "µs"),
        Curve("first answer", "s", 2),
        Curve("start", "s", 2),
        Curve("CPU of a start", "s", 2),
        Curve("start after kill -9", "s", 2),
    ),
    _subject,
)
