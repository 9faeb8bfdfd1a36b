"""Loads of prepared requests on several connections: requests or bytes per second, and the broker's CPU."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from bench import requests
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.pages import take_pages
from bench.rawload import Load, Result, run
from bench.requests import BrokerClient, frame
from bench.topics import Topic, new_topic
from tests.support.server import HOST, Server

CONNECTIONS = 16
DEPTH = 8
PARTITIONS = 4
SMALL_BYTES = 100
PREFILLED = 5000  # records of a partition that fetch-small reads at random
BIG_CONNECTIONS = 4
BIG_RECORDS = 1000
BIG_RECORD_BYTES = 1000
BIG_FETCHED = 1 << 20
BURST_S = 0.5
BURST_WARMUP_S = 0.3
BURST_BYTES_MAX = 3 << 30  # what a burst writes on a fast machine
TIMED_BATCHES = 2000
TIMED_RECORDS = 50  # in a batch, so that each batch is larger than log.index.interval.bytes
BIG_PREFILLED = 250  # batches of about 1 MB in each of the partitions

# The frames of connection n, for a topic that exists.
Frames = Sequence[Sequence[bytes]]


def _per_request(rate_target: float, *, p99_target: float | None = None) -> tuple[Figure, ...]:
    return (
        Figure("requests/s", "requests/s", target=rate_target),
        Figure("p50", "ms", less=True, digits=2),
        Figure("p99", "ms", less=True, digits=2, target=p99_target),
        Figure("CPU per request", "µs", less=True, digits=1),
    )


def per_byte(cpu_target: float, *, rate_target: float = 1.0) -> tuple[Figure, ...]:
    return (
        Figure("MB/s", "MB/s", target=rate_target),
        Figure("CPU per GB", "s", less=True, digits=2, target=cpu_target),
    )


def _requests_sample(result: Result) -> Sample:
    assert result.cpu_us_per_answer is not None
    return {
        "requests/s": result.answers_per_s,
        "p50": result.p50_ms,
        "p99": result.p99_ms,
        "CPU per request": result.cpu_us_per_answer,
        "generator": result.generator_share,
    }


def _bytes_sample(bytes_per_s: float, result: Result) -> Sample:
    assert result.cpu_share is not None
    return {"MB/s": bytes_per_s / 1e6, "CPU per GB": result.cpu_share / bytes_per_s * 1e9, "generator": result.generator_share}


def _load(
    server: Server, settings: Settings, frames: Frames, topic: Topic | None = None, *, connections: int = CONNECTIONS, depth: int = DEPTH
) -> Load:
    """With a topic, connection n is one to the leader of the partition that its frames name: n modulo their number."""
    ports = () if topic is None else topic.ports
    return Load(HOST, server.port, frames, connections, depth, settings.seconds, settings.warmup_s, ports=ports)


def _warmed(measure: Callable[[Load], Sample], load: Load, settings: Settings) -> Measure:
    measure(replace(load, seconds=settings.first_warmup_s))
    return lambda: measure(load)


def _produce_small(depth: int) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        name = f"produce-small-{depth}"
        with new_topic(server, name, PARTITIONS) as topic:
            records = requests.batch(1, SMALL_BYTES)
            frames = [[frame(requests.produce(topic.id, partition, records))] for partition in range(PARTITIONS)]

            def measure(load: Load) -> Sample:
                before = topic.end_offsets()
                result = run(load, server.pid)
                if topic.end_offsets() - before < result.answers_per_s * load.seconds * 0.99:
                    raise requests.Refused("some acknowledged produce requests were not appended")
                return _requests_sample(result)

            yield _warmed(measure, _load(server, settings, frames, topic, depth=depth), settings)

    return ready


@contextmanager
def _fetch_small(server: Server, settings: Settings) -> Iterator[Measure]:
    with new_topic(server, "fetch-small", PARTITIONS) as topic:
        topic.fill(requests.batch(1, SMALL_BYTES), PREFILLED)
        with BrokerClient(topic.leaders[0]) as client:
            client.socket.sendall(frame(requests.fetch(topic.id, 0, PREFILLED // 2, 1)))
            answer_bytes = len(client.receive())
        chance = random.Random(7)
        frames = [
            [frame(requests.fetch(topic.id, number % PARTITIONS, chance.randrange(1, PREFILLED), 1)) for _ in range(1000)]
            for number in range(CONNECTIONS)
        ]

        def measure(load: Load) -> Sample:
            result = run(load, server.pid)
            if result.bytes_in_per_s < result.answers_per_s * answer_bytes * 0.99:
                raise requests.Refused("some fetch responses had no records")
            return _requests_sample(result)

        yield _warmed(measure, _load(server, settings, frames, topic), settings)


@contextmanager
def _metadata(server: Server, settings: Settings) -> Iterator[Measure]:
    with new_topic(server, "metadata", PARTITIONS):
        frames = [[frame(requests.metadata("metadata"))]]
        yield _warmed(lambda load: _requests_sample(run(load, server.pid)), _load(server, settings, frames), settings)


@contextmanager
def _produce_big(server: Server, settings: Settings) -> Iterator[Measure]:
    """The mean of short bursts, each for a topic of its own: data that are deleted before write-back begins (vm.dirty_background_ratio)
    free the page cache without disk I/O. In a longer one the system slows the writers down to the speed of the disk, the faster one sooner.

    A virtual machine whose host takes free memory back gets new pages one by one, several times slower than it writes to them. So
    before each burst the pages are taken and freed again, and both brokers write to pages that the machine has.
    """
    records = requests.batch(BIG_RECORDS, BIG_RECORD_BYTES)

    def burst() -> Result:
        take_pages(BURST_BYTES_MAX)
        with new_topic(server, "produce-big", PARTITIONS) as topic:
            frames = [[frame(requests.produce(topic.id, partition, records))] for partition in range(PARTITIONS)]
            load = _load(server, settings, frames, topic, connections=BIG_CONNECTIONS, depth=2)
            before = topic.end_offsets()
            result = run(replace(load, seconds=BURST_S, warmup_s=BURST_WARMUP_S), server.pid)
            if topic.end_offsets() - before < result.answers_per_s * BURST_S * BIG_RECORDS * 0.99:
                raise requests.Refused("some acknowledged produce requests were not appended")
        return result

    def measure(seconds: float) -> Sample:
        results = [burst() for _ in range(math.ceil(seconds / 2 / BURST_S))]
        rate, share, generator = (
            sum(values) / len(results)
            for values in zip(*((each.answers_per_s, each.cpu_share or 0.0, each.generator_share) for each in results), strict=True)
        )
        if not rate:
            raise requests.Refused("no produce request was answered in any burst")
        mean = replace(results[0], answers_per_s=rate, cpu_share=share, generator_share=generator)
        return _bytes_sample(rate * len(records), mean)

    measure(2 * settings.first_warmup_s)
    yield lambda: measure(settings.seconds)


@contextmanager
def fetch_big(server: Server, settings: Settings, at: Callable[[Load], Load] = lambda load: load) -> Iterator[Measure]:
    """Fetches of a whole batch of 1 MB. `at`: gives the load another listener of the broker."""
    with new_topic(server, "fetch-big", PARTITIONS) as topic:
        records = requests.batch(BIG_RECORDS, BIG_RECORD_BYTES)
        topic.fill(records, BIG_PREFILLED)
        # The first record of every new topic is the one that create_topic wrote.
        offsets = range(1, 1 + (BIG_PREFILLED - 2) * BIG_RECORDS, BIG_RECORDS)
        frames = [
            [frame(requests.fetch(topic.id, partition, offset, BIG_FETCHED)) for offset in offsets] for partition in range(PARTITIONS)
        ]

        def measure(load: Load) -> Sample:
            result = run(load, server.pid)
            if result.bytes_in_per_s < result.answers_per_s * len(records):
                raise requests.Refused("some fetch responses had no whole batch")
            return _bytes_sample(result.bytes_in_per_s, result)

        yield _warmed(measure, at(_load(server, settings, frames, topic, connections=BIG_CONNECTIONS, depth=1)), settings)


@contextmanager
def _lookups(server: Server, settings: Settings) -> Iterator[Measure]:
    """Each request looks up the same random time in every partition."""
    name = "time-lookup"
    with new_topic(server, name, PARTITIONS) as topic, BrokerClient(server.address) as client:
        for number in range(TIMED_BATCHES):
            records = requests.batch(TIMED_RECORDS, SMALL_BYTES, requests.FIRST_TIMESTAMP + number * TIMED_RECORDS)
            for partition in range(PARTITIONS):
                client.fill(topic.id, partition, records, 1)
        chance = random.Random(7)
        times = [requests.FIRST_TIMESTAMP + chance.randrange(1, TIMED_BATCHES * TIMED_RECORDS) for _ in range(1000)]
        for found in client.call(requests.offset_at(name, dict.fromkeys(range(PARTITIONS), times[0]))).topics[0].partitions:
            # The first record of every new topic is the one that create_topic wrote.
            if found.error_code or found.offset != times[0] - requests.FIRST_TIMESTAMP + 1:
                raise requests.Refused(f"the look-up by time returned offset {found.offset} and error {found.error_code}")
        frames = [[frame(requests.offset_at(name, dict.fromkeys(range(PARTITIONS), time))) for time in times]]

        def measure(load: Load) -> Sample:
            sample = _requests_sample(run(load, server.pid))
            return {**sample, "look-ups/s": sample["requests/s"] * PARTITIONS}

        yield _warmed(measure, _load(server, settings, frames), settings)


_IN_FLIGHT = f"{CONNECTIONS} connections x {DEPTH} requests in flight"
BENCHES = (
    Bench("produce-small", f"{_IN_FLIGHT}, acks=1, one 100-byte record", _per_request(2.2), _produce_small(DEPTH)),
    Bench("produce-small-1", f"{CONNECTIONS} connections x 1 request in flight", _per_request(1.15, p99_target=0.7), _produce_small(1)),
    Bench("fetch-small", f"{_IN_FLIGHT}, one record, random offsets", _per_request(3.0), _fetch_small),
    Bench("metadata", f"{_IN_FLIGHT}, one topic", _per_request(3.0), _metadata),
    Bench(
        "produce-big",
        "4 connections x 2 requests in flight, 1 MB batches, in bursts of 0.5 s, each into a new topic and pages that were taken before",
        per_byte(0.7),
        _produce_big,
    ),
    Bench("fetch-big", "4 connections, 1 MB, page cache warm", per_byte(0.9), fetch_big),
    Bench(
        "time-lookup",
        f"{_IN_FLIGHT}, ListOffsets of a random time in {PARTITIONS} partitions of {TIMED_BATCHES} batches",
        (Figure("look-ups/s", "look-ups/s", target=0.7), Figure("CPU per request", "µs", less=True, digits=1)),
        _lookups,
    ),
)
