"""Batches that `prepare` checks and stamps leave the same results and the same files as batches that take the readable way."""

from __future__ import annotations

import errno
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, batch, open_log, values
from tests.support import compiled
from tests.support.compressed_forms import Form, forms
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from txbroker.errors import BrokerError, StorageError
from txbroker.log import appending, produced_batch
from txbroker.log.index_file import PENDING_BYTES_MAX
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Appended
from txbroker.log.producers import ProducerState
from txbroker.wire import legacy
from txbroker.wire.batch import HEADER, seal, stamp
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record

HOUR = 3_600_000
PRODUCER = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0}

MODULES = compiled.forms(produced_batch)
FORMS = [form for form in forms() if len(form.data) < 1000]
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)


class Produced(NamedTuple):
    """A batch of a producer. `step`: its first sequence, counted from the one that is next."""

    contents: list[bytes]
    producer_id: int
    epoch: int
    step: int
    transactional: bool
    codec: Codec

    def made(self, log: Log) -> memoryview:
        state = log.producers.get(self.producer_id)
        is_known = state is not None and state.epoch == self.epoch
        sequence = max(0, (state.last_sequence + 1 if state is not None and is_known else 0) + self.step)
        options = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return batch(*self.contents, codec=self.codec, transactional=self.transactional, **options)


PLAIN: Any = st.builds(
    lambda contents, hours, codec, step, key: ("plain", contents, hours, codec, step, key),
    st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    st.integers(0, 2),
    st.sampled_from([Codec.NONE, *Codec]),
    st.sampled_from([0, 0, 7, -7]),
    st.sampled_from([b"k", b"k", b"k", None]),
)
PRODUCED = st.builds(
    Produced,
    st.lists(st.binary(max_size=60), min_size=1, max_size=3),
    st.sampled_from([4, 5]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 0, 0, 0, 1, -1, -2, -20]),
    st.sampled_from([False, False, True]),
    st.sampled_from([Codec.NONE, Codec.SNAPPY, Codec.LZ4]),
)
BATCHES: Any = st.one_of(
    PLAIN,
    PLAIN,
    PRODUCED,
    PRODUCED,
    PRODUCED,
    st.builds(lambda at, value, fix: ("damaged", at, value, fix), st.integers(0, 140), st.integers(0, 255), st.booleans()),
    st.tuples(st.just("form"), st.integers(0, len(FORMS) - 1)),
    st.tuples(st.just("old"), st.integers(0, 1)),
    st.tuples(st.just("broken")),
    st.tuples(st.just("short"), st.integers(0, 70)),
    st.tuples(st.just("large")),
    st.tuples(st.just("offset")),
)


def made(kind: Any, log: Log) -> memoryview:
    if isinstance(kind, Produced):
        return kind.made(log)
    if kind[0] == "plain":
        return batch(*kind[1], timestamp=NOW + kind[2] * HOUR, codec=kind[3], step_ms=kind[4], key=kind[5])
    if kind[0] == "damaged":
        _, at, value, fixed = kind
        records = batch(b"a value", b"another one", codec=Codec.SNAPPY if value & 1 else Codec.NONE, **PRODUCER)
        records[min(at, len(records) - 1)] = value
        if fixed:
            seal(records, 0, len(records))
        return records
    if kind[0] == "form":
        return memoryview(bytearray(FORMS[kind[1]].batch(NOW)))
    if kind[0] == "old":
        return memoryview(bytearray(legacy.build([Record(0, NOW, None, b"old")], magic=kind[1])))
    if kind[0] == "broken":
        records = batch(b"a wrong checksum")
        records[-1] ^= 1
        return records
    if kind[0] == "short":
        return batch(b"cut off")[: kind[1]]
    return batch(bytes(2000)) if kind[0] == "large" else batch(b"an offset of its own", base_offset=5)


def result(log: Log, records: memoryview, now_ms: int) -> object:
    """What the log answers, and the bytes after it."""
    try:
        return log.append(records, 3, now_ms), bytes(records)
    except BrokerError as error:
        return error.code, error.message, bytes(records)


def producers(log: Log) -> list[tuple[object, ...]]:
    return [
        (state.producer_id, state.epoch, state.last_sequence, state.batches, state.run, state.last_timestamp, state.txn_first_offset)
        for state in log.producers
    ]


def files(log: Log, path: DiskPath) -> dict[str, bytes]:
    log.close()
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@settings(max_examples=examples(300))
@given(
    turns=st.lists(st.lists(BATCHES, min_size=1, max_size=8), max_size=6),
    stamped=st.sampled_from([False, False, False, True]),
    compact=st.booleans(),
    full=st.booleans(),
    codec=st.sampled_from([None, None, None, Codec.NONE, Codec.LZ4]),
    days=st.sampled_from([1, 10_000]),
    segment_bytes=st.sampled_from([300, 1000, 100_000]),
    verified=st.booleans(),
)
def test_the_results_are_those_of_the_readable_way(
    turns: list[list[Any]], stamped: bool, compact: bool, full: bool, codec: Codec | None, days: int, segment_bytes: int, verified: bool
) -> None:
    options: dict[str, Any] = {
        "segment_bytes": segment_bytes,
        "index_interval_bytes": 100,
        "max_message_bytes": 1500,
        "segment_ms": 2 * HOUR,
        "message_timestamp_log_append": stamped,
        "compression_type": codec,
        "message_timestamp_before_max_ms": days * 24 * HOUR,
        "message_timestamp_after_max_ms": HOUR,
        "record_validation_full": full,
        "cleanup_policy": frozenset({"compact" if compact else "delete"}),
    }
    ways: list[Any] = [lambda *_: None, *(module.prepare for module in MODULES)]
    paths = [DiskPath(MemoryDisk(), f"/{number}").made() for number in range(len(ways))]
    logs = [open_log(path, **options) for path in paths]
    if verified:
        for log in logs:
            log.producers.begin_verification(4, 1, 2)
    for number, turn in enumerate(turns):
        now_ms = NOW + number * HOUR // 2
        for kind in turn:
            found = []
            for log, way in zip(logs, ways, strict=True):
                records = made(kind, log)
                with patch.object(appending, "prepare", way):
                    found.append((result(log, records, now_ms), log.log_end_offset, producers(log)))
            assert found[1:] == found[:1] * len(MODULES)
    readable, *others = logs
    for log in others:
        assert values(log) == values(readable)
        assert [log.segments[-1].locate(offset) for offset in range(log.log_end_offset)] == [
            readable.segments[-1].locate(offset) for offset in range(log.log_end_offset)
        ]
        assert log.segments[-1].max_timestamp == readable.segments[-1].max_timestamp
    expected, *written = [files(log, path) for log, path in zip(logs, paths, strict=True)]
    assert written == [expected] * len(MODULES)


def known(*, epoch: int = 2, last_sequence: int = 9, txn_first_offset: int = -1) -> dict[int, ProducerState]:
    state = ProducerState(7)
    state.epoch, state.last_sequence, state.txn_first_offset = epoch, last_sequence, txn_first_offset
    return {7: state}


def prepare(
    module: ModuleType, records: memoryview, states: dict[int, ProducerState] | None = None, *, end: int = 100, **config: Any
) -> Any:
    return module.prepare(records, LogConfig(**config).limits, {} if states is None else states, NOW, end, 3)


NEXT = {**PRODUCER, "base_sequence": 10}
TRANSACTION = {**NEXT, "transactional": True}
LONG_AGO = {"message_timestamp_before_max_ms": HOUR}
SOON = {"message_timestamp_after_max_ms": HOUR}
BOUNDED = {"record_validation_full": False}
COMPACTED = {"cleanup_policy": frozenset({"compact"})}

TAKEN: dict[str, tuple[dict[str, Any], dict[int, ProducerState], dict[str, Any]]] = {
    "no producer": ({}, {}, {}),
    **{codec.name: ({"codec": codec}, {}, {}) for codec in Codec},
    "a new producer": (PRODUCER, {}, {}),
    "a producer that this log has forgotten": ({**PRODUCER, "base_sequence": 123}, {}, {}),
    "the next batch": (NEXT, known(), {}),
    "the sequence after the largest": (PRODUCER, known(last_sequence=2**31 - 1), {}),
    "the first batch after a marker": (PRODUCER, known(last_sequence=-1), {}),
    "the first batch of another epoch": (PRODUCER, known(epoch=1), {}),
    "the first batch of a transaction": (TRANSACTION, known(), {}),
    "another batch of a transaction": (TRANSACTION, known(txn_first_offset=5), {}),
    "the codec of the topic": ({"codec": Codec.LZ4}, {}, {"compression_type": Codec.LZ4}),
    "keys for a compacted topic": ({}, {}, COMPACTED),
    "a recent timestamp": ({"timestamp": NOW - HOUR}, {}, LONG_AGO),
    "a timestamp soon": ({"timestamp": NOW + HOUR}, {}, SOON),
    "one record, bounded": ({"codec": Codec.GZIP}, {}, BOUNDED),
}
LEFT: dict[str, tuple[dict[str, Any], dict[int, ProducerState], dict[str, Any]]] = {
    "an earlier sequence": ({**PRODUCER, "base_sequence": 9}, known(), {}),
    "a later sequence": ({**PRODUCER, "base_sequence": 11}, known(), {}),
    "a first sequence within the epoch": (PRODUCER, known(), {}),
    "no first sequence of an epoch": (NEXT, known(epoch=1), {}),
    "an old epoch": (NEXT, known(epoch=3), {}),
    "no sequence": ({**PRODUCER, "base_sequence": -1}, {}, {}),
    "outside of the open transaction": (NEXT, known(txn_first_offset=5), {}),
    "a transaction without a producer": ({"transactional": True}, {}, {}),
    "a marker": ({"control": True}, {}, {}),
    "LogAppendTime": ({"log_append_time": NOW}, {}, {}),
    "another codec than the topic's": ({"codec": Codec.LZ4}, {}, {"compression_type": Codec.NONE}),
    "no key for a compacted topic": ({"key": None}, {}, COMPACTED),
    "an old timestamp": ({"timestamp": NOW - HOUR - 1}, {}, LONG_AGO),
    "a timestamp in the future": ({"timestamp": NOW + HOUR + 1}, {}, SOON),
    "no timestamp": ({"timestamp": -1}, {}, {}),
    "a base offset": ({"base_offset": 1}, {}, {}),
    "too large": ({}, {}, {"max_message_bytes": 100}),
    "larger than a segment": ({}, {}, {"segment_bytes": 100}),
}


@every_module
@pytest.mark.parametrize("name", list(TAKEN))
def test_a_usual_batch_is_stamped(module: ModuleType, name: str) -> None:
    options, states, config = TAKEN[name]
    records = batch(b"v" * 80, **options)
    expected = memoryview(bytearray(records))
    stamp(expected, 0, 100, 3)
    header = HEADER.unpack(records[:61])
    fields = header[6], header[8], *header[9:12], bool(options.get("transactional"))
    assert prepare(module, records, states, **config) == fields
    assert records == expected


@every_module
@pytest.mark.parametrize("name", list(LEFT))
def test_an_unusual_batch_is_left_as_it_is(module: ModuleType, name: str) -> None:
    options, states, config = LEFT[name]
    records = batch(b"v" * 80, **options)
    before = bytes(records)
    assert prepare(module, records, states, **config) is None
    assert records == before


@every_module
def test_a_batch_that_bounded_validation_does_not_walk_is_left(module: ModuleType) -> None:
    several = batch(b"a", b"b", codec=Codec.LZ4)
    assert prepare(module, several, record_validation_full=False) is None
    assert prepare(module, several, record_validation_full=True) is not None
    large = batch(*[b"v" * 100] * 65)
    assert prepare(module, large, record_validation_full=False) is None
    assert prepare(module, batch(*[b"v" * 100] * 64), record_validation_full=False) is not None


@every_module
def test_the_last_offset_must_fit_64_bits(module: ModuleType) -> None:
    assert prepare(module, batch(b"a", b"b"), end=2**63 - 3) is not None
    assert prepare(module, batch(b"a", b"b"), end=2**63 - 2) is None


@every_module
def test_a_small_batch_that_decompresses_to_too_much_is_left(module: ModuleType) -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        records = batch(bytes(5000), codec=codec)
        size_max, _, *rest = LogConfig().limits or ()
        assert module.prepare(records, (size_max, 4000, *rest), {}, NOW, 0, 0) is None
        assert module.prepare(records, (size_max, 6000, *rest), {}, NOW, 0, 0) is not None


@every_module
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_unusual_compressed_records_are_taken_if_java_reads_them(module: ModuleType, form: Form) -> None:
    assert (prepare(module, memoryview(bytearray(form.batch(NOW)))) is not None) == form.read


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_leaves_the_log_as_it_was(directory: DiskPath, code: int) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    log.append(batch(b"a", **PRODUCER), 0, NOW)
    known = producers(log)
    disk.fail(WRITES, error=code)
    with pytest.raises(StorageError):
        log.append(batch(b"lost", **{**PRODUCER, "base_sequence": 1}), 0, NOW)
    assert (log.log_end_offset, values(log), producers(log)) == (1, [b"a"], known)
    disk.repair()
    assert log.append(batch(b"b", **{**PRODUCER, "base_sequence": 1}), 0, NOW).first_offset == 1
    assert values(log) == [b"a", b"b"]


def test_a_failed_mapping_of_an_index_leaves_the_log_as_it_was(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, index_interval_bytes=0)
    count = PENDING_BYTES_MAX // 8 + 1  # the offset index writes its entries out before the next one
    for number in range(count):
        log.append(batch(b"v", timestamp=NOW + number), 0, NOW)
    disk.fail("map", error=errno.ENOMEM, times=1)
    with pytest.raises(StorageError):
        log.append(batch(b"lost", timestamp=NOW + count), 0, NOW)
    log.append(batch(b"kept", timestamp=NOW + count), 0, NOW)
    offsets = [header.base_offset for _, _, _, header in log.segments[0].walk(0)]
    assert offsets == list(range(count + 1))
    assert values(log)[-2:] == [b"v", b"kept"]


def test_the_result_of_an_append_names_the_first_and_the_last_record(directory: DiskPath) -> None:
    log = open_log(directory)
    assert log.append(batch(b"a", b"b"), 0, NOW) == Appended(0, 1, -1, 0)
    assert log.append(batch(b"c", **PRODUCER), 0, NOW) == Appended(2, 2, -1, 0)
    assert log.append(batch(b"c", **PRODUCER), 0, NOW) == Appended(2, 2, -1, 0, duplicate=True)
