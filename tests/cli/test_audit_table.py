"""The table of `audit keys` compared with a dictionary: every key and committed offset, with any amount of memory."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cli.audit.audit import Audit, Question, Selection
from txbroker.cli.audit.latest_versions import DELETED, HASH_END, VERSIONED, Latest, MemoryExceeded
from txbroker.cli.audit.record_rows import Bounds, Chunk, Decoded, Decoder
from txbroker.console.failures import CommandFailed
from txbroker.log.aborted_transactions import UNKNOWN_END
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire.compression import Codec
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.records import Record, build


def decode(chunk: Chunk, end: int, header: str | None = None) -> Decoded:
    return Decoder(header).rows(chunk, end, lambda high: np.ones(len(high), np.bool_))


MEMORY = 64 * 1024 * 1024
VERSIONS = (b"12345678", b"12345679", b"\x80" + bytes(7), b"\xff" * 8, b"short", None)
BY_OFFSET = CompactionOrder()
ORDERS = [BY_OFFSET, CompactionOrder(Strategy.TIMESTAMP), CompactionOrder(Strategy.HEADER, "v")]
Answer = tuple[int, int, int | None, bool]  # offset, timestamp, version, deleted


class Log:
    """A topic of one partition in memory, in chunks of a few batches."""

    name = "log"

    def __init__(self, records: list[Record], batch: int = 7, chunk: int = 3) -> None:
        batches = [records[i : i + batch] for i in range(0, len(records), batch)]
        codecs = list(Codec)
        self._chunks = [
            (group[0][0].offset, b"".join(build(part, codec=codecs[part[0].offset % len(codecs)]) for part in group), group[-1][-1].offset)
            for group in (batches[i : i + chunk] for i in range(0, len(batches), chunk))
        ]
        self.reads = 0

    def bounds(self) -> dict[int, Bounds]:
        return {0: Bounds(self._chunks[0][0], self._chunks[-1][2] + 1) if self._chunks else Bounds(0, 0)}

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        self.reads += 1
        return next((Chunk(memoryview(data), offset, []) for _, data, last in self._chunks if last >= offset), None)


def answer(record: Record) -> Answer:
    version = next((value for name, value in reversed(record.headers) if name == "v"), None)
    number = int.from_bytes(version, "big", signed=True) if version is not None and len(version) == 8 else None
    return record.offset, record.timestamp, number, record.value is None


def found(source: Log, question: Question) -> tuple[dict[bytes, tuple[Answer, dict[str, tuple[Answer | None, bool]]]], Audit]:
    fractions: list[float] = []
    audit = Audit(source, question, lambda size, records, fraction: fractions.append(fraction))
    answers = {}
    for page in audit.pages(source.bounds()):
        rows = page.rows

        def value(index: int, rows: object = rows) -> Answer | None:
            if index < 0:
                return None
            flags = int(page.rows.flags[index])  # noqa: B023
            version = int(page.rows.version[index]) if flags & VERSIONED else None  # noqa: B023
            return int(page.rows.offset[index]), int(page.rows.timestamp[index]), version, bool(flags & DELETED)  # noqa: B023

        offsets = [int(rows.offset[index]) for index in page.latest]
        assert offsets == sorted(offsets)
        for at, index in enumerate(page.latest):
            groups = {group: (value(int(given.row[at])), bool(given.unseen[at])) for group, given in page.delivered.items()}
            latest = value(int(index))
            assert latest is not None
            assert rows.key(int(index)) not in answers, "each key is returned once"
            answers[rows.key(int(index))] = latest, groups
    if fractions and audit.summary.passes == 1:
        assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1), "progress"
    return answers, audit


def expected(
    records: list[Record], committed: dict[str, int], order: CompactionOrder = BY_OFFSET
) -> dict[bytes, tuple[Answer, dict[str, tuple[Answer | None, bool]]]]:
    latest: dict[bytes, Record] = {}
    given: dict[str, dict[bytes, Record]] = {group: {} for group in committed}
    for record in sorted(records, key=order.rank):
        if record.key is not None:
            latest[record.key] = record
            for group, offset in committed.items():
                if record.offset < offset:
                    given[group][record.key] = record
    return {
        key: (answer(record), {
            group: (answer(known[key]) if key in known else None, known.get(key) is not record) for group, known in given.items()
        })
        for key, record in latest.items()
    }  # fmt: skip


def sample_log(count: int, keys: int, seed: int, gaps: bool = True, timestamps: int = 10**6) -> list[Record]:
    chance = random.Random(seed)
    records, offset = [], chance.randrange(5)
    for _ in range(count):
        key = None if chance.random() < 0.02 else b"key-%d" % chance.randrange(keys) * chance.choice((1, 1, 3))
        value = None if chance.random() < 0.2 else b"v"
        versions = tuple(("v", chance.choice(VERSIONS)) for _ in range(chance.randrange(3)))
        records.append(Record(offset, chance.randrange(timestamps), key, value, versions))
        offset += chance.choice((1, 1, 1, 4)) if gaps else 1
    return records


@given(st.integers(0, 400), st.integers(1, 60), st.integers(0, 10**6), st.lists(st.integers(0, 1000), max_size=4),
       st.sampled_from(ORDERS), st.sampled_from([5, 10**6]))
def test_results_are_equal_to_those_of_a_dictionary(
    count: int, keys: int, seed: int, offsets: list[int], order: CompactionOrder, timestamps: int
) -> None:
    records = sample_log(count, keys, seed, timestamps=timestamps)
    committed = {f"group-{i}": offset for i, offset in enumerate(offsets)}
    question = Question(Selection(), {group: {0: offset} for group, offset in committed.items()}, False, "v", MEMORY, order)
    answers, audit = found(Log(records), question)
    model = expected(records, committed, order)
    assert answers == model
    assert audit.summary.records == count
    assert audit.summary.keyless == sum(record.key is None for record in records)
    for group in committed:
        unseen = [record for record, groups in model.values() if groups[group][1]]
        assert audit.summary.groups[group].unseen == len(unseen)
        assert audit.summary.groups[group].oldest_ms == min((record[1] for record in unseen), default=None)


@pytest.mark.parametrize("order", ORDERS)
def test_a_table_that_is_too_small_reads_a_part_of_the_keys_each_time(order: CompactionOrder) -> None:
    records = sample_log(20_000, 12_000, 5)
    committed = {"one": 9_000, "two": 15_000}
    source = Log(records, batch=500)
    question = Question(Selection(), {group: {0: offset} for group, offset in committed.items()}, False, "v", 3_000_000, order)
    answers, audit = found(source, question)
    assert answers == expected(records, committed, order)
    assert audit.summary.passes > 2
    assert audit.summary.records == len(records), "no record is counted twice"


def test_a_sample_has_the_same_keys_each_time_and_larger_ones_contain_it() -> None:
    records = sample_log(6_000, 3_000, 1)
    everything = expected(records, {})
    tenth = found(Log(records), Question(Selection(HASH_END // 10), {}, False, "v", MEMORY))[0]
    shuffled = sorted(records, key=lambda record: record.key or b"")
    again = [Record(i, *record[1:]) for i, record in enumerate(shuffled)]
    assert found(Log(again), Question(Selection(HASH_END // 10), {}, False, "v", MEMORY))[0].keys() == tenth.keys()
    assert found(Log(records), Question(Selection(HASH_END // 5), {}, False, "v", MEMORY))[0].keys() > tenth.keys()
    assert tenth == {key: everything[key] for key in tenth}
    assert 0.06 < len(tenth) / len(everything) < 0.14


def test_keys_that_are_named_and_those_that_are_missing() -> None:
    records = sample_log(500, 20, 2)
    question = Question(Selection(keys=(b"key-3", b"key-7", b"missing")), {"group": {0: 100}}, False, None, MEMORY)
    answers, audit = found(Log(records), question)
    model = expected([record._replace(headers=()) for record in records], {"group": 100})
    assert answers == {key: model[key] for key in (b"key-3", b"key-7")}
    assert audit.summary.missing == [b"missing"]


def test_unseen_reads_only_records_above_all_committed_offsets() -> None:
    records = sample_log(5_000, 100, 3, gaps=False)
    first = records[0].offset
    committed = {"behind": first + 4_000, "further": first + 4_990}
    source = Log(records)
    question = Question(Selection(), {group: {0: offset} for group, offset in committed.items()}, True, "v", MEMORY)
    answers, audit = found(source, question)
    model = expected(records, committed)
    assert answers.keys() == {key for key, (_, groups) in model.items() if any(unseen for _, unseen in groups.values())}
    assert {key: record for key, (record, _) in answers.items()} == {key: model[key][0] for key in answers}
    assert audit.summary.groups["further"].unseen == sum(groups["further"][1] for _, groups in model.values())
    assert audit.summary.records <= 1_021


def test_unseen_reads_all_records_when_an_old_one_may_be_the_latest() -> None:
    records = sample_log(500, 100, 3, gaps=False)
    committed = {"group": records[0].offset + 400}
    order = ORDERS[2]
    question = Question(Selection(), {"group": {0: committed["group"]}}, True, "v", MEMORY, order)
    answers, _ = found(Log(records), question)
    model = expected(records, committed, order)
    assert answers == {key: found for key, found in model.items() if found[1]["group"][1]}
    assert len(answers) < len({record.key for record in records if record.offset >= committed["group"]}), "some are replaced already"


def test_a_key_that_does_not_fit_is_reported() -> None:
    records = [Record(i, 0, b"x" * 2_000_000, b"v") for i in range(3)]
    with pytest.raises(CommandFailed, match="raise --memory"):
        found(Log(records), Question(Selection(), {}, False, None, 1_000_000))


def test_keys_with_equal_halves_of_the_hash_are_distinguished() -> None:
    chunk = Chunk(build([Record(i, 0, b"abc"[i % 3 : i % 3 + 1], b"v") for i in range(9)]), 0, [])
    rows = decode(chunk, 9).rows
    rows.high[:] = 77
    table = Latest(BY_OFFSET, [4], 0, HASH_END, MEMORY)
    table.add(rows)
    table.finish()
    starts = table.starts()
    assert {table.rows.key(int(i)): int(table.rows.offset[i]) for i in table.latest(starts)} == {b"a": 6, b"b": 7, b"c": 8}
    assert sorted(int(table.rows.offset[i]) for i in table.delivered(starts, 4).row) == [1, 2, 3]
    with pytest.raises(MemoryExceeded):
        tight = Latest(BY_OFFSET, [], 77, HASH_END, 100)
        tight.add(rows)
        tight.finish()


def test_transactions_are_read_as_by_a_consumer() -> None:
    def batch(offset: int, key: bytes, producer: int, transactional: bool = True) -> bytes:
        return build([Record(offset, 0, key, b"v")], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=transactional)

    def marker(offset: int, producer: int, committed: bool) -> bytes:
        return build_marker(Marker(committed, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=offset)

    data = b"".join([
        batch(0, b"a", 1), batch(1, b"b", 2), batch(2, b"c", 1, transactional=False), marker(3, 1, False), batch(4, b"d", 1),
        marker(5, 2, True), marker(6, 1, True), batch(7, b"e", 2), marker(8, 2, False),
    ])  # fmt: skip
    aborted = [AbortedTransaction(producer_id, first_offset, UNKNOWN_END, -1) for producer_id, first_offset in ((1, 0), (2, 7))]
    found_rows = decode(Chunk(data, 0, aborted), 9)
    assert [found_rows.rows.key(i) for i in range(len(found_rows.rows))] == [b"b", b"c", b"d"]
    assert found_rows.next_offset == 9
    everything = decode(Chunk(data, 0, []), 9)
    assert [everything.rows.key(i) for i in range(len(everything.rows))] == [b"a", b"b", b"c", b"d", b"e"]


def test_damage_is_reported() -> None:
    data = bytearray(build([Record(0, 0, b"a", b"v")]))
    data[-1] ^= 1
    with pytest.raises(CommandFailed, match="CRC"):
        decode(Chunk(bytes(data), 0, []), 1)
