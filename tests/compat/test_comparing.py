"""What judges clients must itself see what is wrong: tallies of a reading, parsing of the package index, and the table's cells."""

from __future__ import annotations

import json

import pytest

from compat.demo.packages import parse
from compat.demo.tally import Tally
from compat.matrix import ABSENT, FEATURES, NO, YES, Row, from_markdown, to_markdown, worse
from compat.samples import ANY_TIME, Record, check_records, sample_records

READING = [(0, 0, b"a", b"1"), (1, 0, b"b", b"2"), (0, 1, b"c", None), (1, 1, None, b"")]


def tally(reading: list[tuple[int, int, bytes | None, bytes | None]]) -> Tally:
    made = Tally()
    for record in reading:
        made.add(*record)
    return made


def test_partitions_may_come_in_any_order() -> None:
    other = tally(sorted(READING))
    assert tally(READING).difference(other) is None
    assert other.checksum == tally(READING).checksum
    assert (other.count, other.keys, other.ends) == (4, {b"a", b"b", b"c"}, {0: 2, 1: 2})


@pytest.mark.parametrize(("wrong", "said"), [
    (READING[:-1], "partition 1: 1 records instead of 2"),
    ([*READING, READING[0]], "partition 0: 3 records instead of 2"),
    ([READING[2], *READING[:2], READING[3]], "partition 0: offset 1 where 0 was due"),
    ([(0, 0, b"a", b"x"), *READING[1:]], "partition 0, offset 0: other bytes"),
    ([(0, 0, b"a1", b""), *READING[1:]], "partition 0, offset 0: other bytes"),
    ([*READING[:3], (1, 1, b"", b"")], "partition 1, offset 1: other bytes"),
    ([*READING[:3], (1, 1, None, None)], "partition 1, offset 1: other bytes"),
])
def test_every_difference_is_said(wrong: list[tuple[int, int, bytes | None, bytes | None]], said: str) -> None:
    assert tally(READING).difference(tally(wrong)) == said


def test_the_package_index_is_parted_by_empty_lines() -> None:
    index = b"Package: a\nDescription: one\n .\n two\n\nPackage: b\n\nNotes: no name\n\n"
    assert parse(index) == [(b"a", b"Package: a\nDescription: one\n .\n two\n"), (b"b", b"Package: b\n")]
    assert parse(b"") == []


def test_sample_records_are_checked_part_by_part() -> None:
    sent = sample_records(33)
    check_records(sorted(sent), sent)
    wrong = [
        sent[1:], [*sent, sent[-1]], sent[::-1], [sent[0]._replace(value=b"other"), *sent[1:]], [sent[0]._replace(timestamp=1), *sent[1:]],
        [sent[0]._replace(headers=(("more", b""),)), *sent[1:]], [*sent, Record(0, 11, 0, None, None)],
    ]
    for read in wrong:
        with pytest.raises(AssertionError):
            check_records(read, sent)
    check_records([sent[0]._replace(timestamp=5), *sent[1:]], [sent[0]._replace(timestamp=ANY_TIME), *sent[1:]])


def row(**cells: str) -> Row:
    return Row("some client", "1.0", {**dict.fromkeys(FEATURES, YES), **cells})


def test_a_row_is_what_the_driver_said() -> None:
    found = Row("folder")
    assert found.hear('{"client": "name", "version": "1.2"}') is None
    assert found.hear(json.dumps({"feature": "gzip", "ok": True, "detail": ""})) == "gzip"
    found.hear(json.dumps({"feature": "zstd", "ok": None, "detail": "not there"}))
    found.hear(json.dumps({"feature": "lz4", "ok": False, "detail": "broken"}))
    found.lack(["gzip", "acks"], "it ended")
    assert (found.client, found.version) == ("name", "1.2")
    assert found.cells == {"gzip": YES, "zstd": ABSENT, "lz4": NO, "acks": NO}
    assert found.details == {"zstd": "not there", "lz4": "broken", "acks": "it ended"}


def test_worse_cells_are_found_in_the_written_table() -> None:
    before = from_markdown(to_markdown([row(zstd=ABSENT, lz4=NO)], "a broker"))
    assert before["some client"] == {**dict.fromkeys(FEATURES, YES), "zstd": ABSENT, "lz4": NO}
    assert worse([row(zstd=YES, lz4=NO)], before) == []
    now = row(zstd=NO, gzip=ABSENT, acks=NO, lz4=NO)
    assert {feature for _, feature in worse([now], before)} == {"acks", "gzip", "zstd"}
    fresh = Row("new client", "1", {"gzip": NO, "zstd": YES, "lz4": ABSENT})
    assert worse([fresh], before) == [(fresh, "gzip")], "a client that is not in the table yet"
