"""Parts of the perf tools without a broker: settings, batches, the schedule, and Kafka's report lines."""

from __future__ import annotations

import re
import time

import pytest

from txbroker.cli.perf.batches import Numbers, Templates, batch, given_values, random_values
from txbroker.cli.perf.figures import Latencies, Read, Sent
from txbroker.cli.perf.perf_produce import spread
from txbroker.cli.perf.sender import Batch, Schedule
from txbroker.cli.perf.settings import consumer_settings, producer_settings
from txbroker.console.failures import BadUsage
from txbroker.wire.batch import check_crc, read_header
from txbroker.wire.compression import Codec
from txbroker.wire.records import read_records


def test_settings_have_kafkas_defaults() -> None:
    made = producer_settings({})
    assert (made.acks, made.batch_bytes, made.linger_s, made.codec, made.in_flight) == (-1, 16_384, 0.005, "none", 5)
    assert made.idempotent
    made_too = consumer_settings({})
    assert (made_too.partition_bytes, made_too.fetch_bytes, made_too.min_bytes, made_too.max_wait_ms) == (1 << 20, 50 << 20, 1, 500)


def test_idempotence_is_disabled_by_other_settings_unless_requested() -> None:
    assert not producer_settings({"acks": "1"}).idempotent
    assert not producer_settings({"max.in.flight.requests.per.connection": "9"}).idempotent
    for other in ({"acks": "1"}, {"max.in.flight.requests.per.connection": "6"}):
        with pytest.raises(BadUsage, match=r"enable\.idempotence=true needs "):
            producer_settings({"enable.idempotence": "true", **other})


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"linger": "5"}, r"linger: the property is not supported; supported are acks, batch\.size, .*send\.buffer\.bytes"),
        ({"acks": "2"}, "acks is '2'; it must be all or -1 or 1 or 0"),
        ({"batch.size": "big"}, "batch.size is 'big'; it must be a whole number"),
        ({"batch.size": "-1"}, "batch.size is -1; it must be 0 to 2147483647"),
        ({"enable.idempotence": "yes"}, "enable.idempotence is 'yes'; it must be true or false"),
        ({"security.protocol": "TLS"}, "security.protocol is TLS; it must be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({"transactional.id": ""}, "the transactional id is empty"),
        ({"transactional.id": "t", "acks": "1"}, "a transactional id needs acks=all"),
        ({"transactional.id": "t", "enable.idempotence": "false"}, "a transactional id needs enable.idempotence=true"),
    ],
)
def test_settings_that_are_refused(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadUsage, match=complaint):
        producer_settings(properties)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [1, 100, 5000, 40_000])
def test_batches_of_random_values(codec: Codec, size: int) -> None:
    settings = producer_settings({"compression.type": codec.name.lower()})
    source = Templates(random_values(size), settings)
    for number in range(3):
        full = source.capacity(number)
        for count in {1, (full + 1) // 2, full}:
            payload = source.payload(number, 0, count)
            made = batch(payload, codec, 1_700_000_000_123, 9, 2, 77)
            header = read_header(made)
            check_crc(made, 0, header)
            assert (header.count, header.last_offset_delta, header.codec) == (count, count - 1, codec)
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 77)
            values = [record.value or b"" for record in read_records(made, 0, header, 10**7)]
            assert sum(map(len, values)) == payload.value_bytes == size * count
            assert all(re.fullmatch(rb"[A-Z]+", value) for value in values)
            assert codec is not Codec.NONE or count == 1 or len(made) <= settings.batch_bytes
    if codec is Codec.NONE and size < 5000:
        extra = batch(source.payload(0, 0, source.capacity(0)), codec, 0, -1, -1, -1)
        assert len(extra) + size + 9 > settings.batch_bytes, "one more record would not fit"


def test_batch_size_0_sends_one_record_per_batch() -> None:
    assert Templates(random_values(10), producer_settings({"batch.size": "0"})).capacity(0) == 1


def test_given_values_and_numbers() -> None:
    settings = producer_settings({"batch.size": "1000"})
    source = Templates(given_values([b"", b"one", b"three"]), settings)
    made = batch(source.payload(1, 0, source.capacity(1)), Codec.NONE, 5, -1, -1, -1)
    assert {record.value for record in read_records(made, 0, read_header(made), 10**6)} == {b"", b"one", b"three"}
    numbers = Numbers(12_345, settings)
    payload = numbers.payload(0, 998, 4)
    made = batch(payload, Codec.NONE, 5, -1, -1, -1)
    assert [record.value for record in read_records(made, 0, read_header(made), 10**6)] == [b"998", b"999", b"1000", b"1001"]
    assert payload.value_bytes == 14


def test_a_schedule() -> None:
    at_once = Schedule(10, -1, 100.0)
    assert (at_once.due(100.0), at_once.due_s(9, 103.0)) == (10, 103.0)
    steady = Schedule(10, 4, 100.0)
    assert [steady.due(100.0 + elapsed) for elapsed in (0, 0.24, 0.26, 1.0, 99)] == [1, 1, 2, 5, 10]
    assert steady.due_s(8, 0) == 102.0


def test_latencies_of_records_in_batches() -> None:
    sent = Batch(bytearray(), 0, 100, 0, due_s=1.0, last_due_s=1.09, built_s=1.1)
    parts = spread(sent, 1.2)
    assert sum(count for _, count in parts) == 100
    assert parts[0][0] == pytest.approx(200)
    assert parts[-1][0] == pytest.approx(110)
    assert spread(Batch(bytearray(), 0, 3, 0, 1.0, 1.0, 1.0), 1.5) == [(500.0, 3)]


def test_percentiles_are_those_of_sorted_records() -> None:
    latencies = Latencies()
    for ms in range(1000):
        latencies.add(ms + 0.5, 1)
    assert latencies.percentiles_ms() == [500.5, 950.5, 990.5, 999.5]
    assert (latencies.average_ms, latencies.max_ms) == (500.0, 999.5)
    one = Latencies()
    one.add(3.25, 7)
    assert one.percentiles_ms() == [3.25] * 4
    assert Latencies().percentiles_ms() == [0.0] * 4


def test_kafkas_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = Latencies()
    latencies.add(2.0, 999)
    latencies.add(10.0, 1)
    sent = Sent(1000, 2 * 1024 * 1024, 10.0, 12.0, latencies)
    assert sent.interval_line() == "1000 records sent, 500.0 records/sec (1.00 MB/sec), 2.0 ms avg latency, 10.0 ms max latency."
    assert sent.total_line() == (
        "1000 records sent, 500.000000 records/sec (1.00 MB/sec), 2.01 ms avg latency, 10.00 ms max latency, "
        "2 ms 50th, 2 ms 95th, 2 ms 99th, 10 ms 99.9th."
    )
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        read = Read(1000, 2 * 1024 * 1024, 1_700_000_000.25, 1_700_000_002.25, 1000)
        assert read.total_line() == (
            "2023-11-14 22:13:20:250, 2023-11-14 22:13:22:250, 2.0000, 1.0000, 1000, 500.0000, 1000, 1000, 2.0000, 1000.0000"
        )
        assert read.interval_line(read._replace(records=3000)) == (
            "2023-11-14 22:13:22:250, 0, 2.0000, 1.0000, 3000, 500.0000, 1000, 1000, 2.0000, 1000.0000"
        )
    finally:
        monkeypatch.undo()
        time.tzset()
