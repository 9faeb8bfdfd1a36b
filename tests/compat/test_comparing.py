"""The code that checks clients detects errors itself: comparing records, parsing the package index, and the cells of the table."""

from __future__ import annotations

import pytest

from compat.clients import CLIENTS as EVERY_CLIENT
from compat.clients import HERE
from compat.demo.packages import parse
from compat.demo.tally import Tally
from compat.matrix import ABSENT, CLIENTS, FAULT, FEATURES, NO, TOOLS, YES, Row, worse
from compat.page import ONE, SEVERAL, Edition, from_markdown, replaced, to_markdown
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
def test_every_difference_is_reported(wrong: list[tuple[int, int, bytes | None, bytes | None]], said: str) -> None:
    assert tally(READING).difference(tally(wrong)) == said


def test_empty_lines_separate_entries_of_the_package_index() -> None:
    index = b"Package: a\nDescription: one\n .\n two\n\nPackage: b\n\nNotes: no name\n\n"
    assert parse(index) == [(b"a", b"Package: a\nDescription: one\n .\n two\n"), (b"b", b"Package: b\n")]
    assert parse(b"") == []


def test_every_part_of_sample_records_is_checked() -> None:
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


def row(client: str = "some client", **cells: str) -> Row:
    return Row(client, "1.0", {**dict.fromkeys(FEATURES[CLIENTS], YES), **cells})


def test_a_row_has_what_the_driver_reported() -> None:
    found = Row("some client")
    assert found.hear({"client": "what it calls itself", "version": "1.2"}) is None
    assert found.hear({"feature": "gzip", "ok": True, "detail": ""}) == "gzip"
    found.hear({"feature": "zstd", "ok": None, "detail": "not there"})
    found.hear({"feature": "lz4", "ok": False, "detail": "broken\nin two lines"})
    found.hear({"feature": "static", "ok": None, "fault": "it forgets"})
    found.lack(["gzip", "acks"], "it ended")
    assert (found.client, found.version) == ("some client", "1.2")
    assert found.cells == {"gzip": YES, "zstd": ABSENT, "lz4": NO, "static": FAULT, "acks": NO}
    assert found.details == {"zstd": "not there", "lz4": "broken in two lines", "static": "it forgets", "acks": "it ended"}


def test_worse_cells_are_found() -> None:
    before = [row(zstd=ABSENT, lz4=NO, static=FAULT)]
    assert worse([row(zstd=YES, lz4=NO)], before) == []
    now = row(zstd=NO, gzip=ABSENT, acks=NO, lz4=NO, static=ABSENT, none=FAULT)
    fallen = {feature: other for _, feature, other in worse([now], before)}
    assert fallen == {"acks": YES, "gzip": YES, "none": YES, "zstd": ABSENT}
    fresh = Row("new client", "1", {"gzip": NO, "zstd": YES, "lz4": ABSENT})
    assert worse([fresh], before) == [(fresh, "gzip", ABSENT)], "a client that is not in the table yet"


def test_reading_and_writing_the_page_changes_nothing() -> None:
    client = row(zstd=ABSENT, lz4=FAULT, long_poll=NO)
    client.details = {"zstd": "it has none", "lz4": "a, b: c", "long_poll": "late"}
    tool = Row("a tool", "2", dict.fromkeys(FEATURES[TOOLS], YES))
    page = {ONE.ours: {CLIENTS: [client, row("other")], TOOLS: [tool]}, ONE.kafka: {CLIENTS: [row(long_poll=NO)]}}
    written = to_markdown(page, ONE)
    assert from_markdown(written) == page
    assert "Worse on txbroker than on Kafka: some client lz4 (client, there yes), some client zstd (-, there yes)." in written
    better = {ONE.ours: {CLIENTS: [row()]}, ONE.kafka: {CLIENTS: [row(lz4=NO)]}}
    assert "No cell is worse on txbroker than on Kafka." in to_markdown(better, ONE)
    with pytest.raises(ValueError, match="a malformed row"):
        from_markdown(written.replace("| client |", "| client | more |", 1).replace("| some client | 1.0 | yes", "| some client | 1.0"))


def test_a_new_row_replaces_the_old_one_in_place() -> None:
    half = {CLIENTS: [row("a"), row("gone"), row("b", lz4=NO)]}
    fresh = {CLIENTS: [row("b"), row("new")]}
    assert replaced(half, fresh, ["new", "a", "b"]) == {CLIENTS: [row("new"), row("a"), row("b")], TOOLS: []}


def test_a_cell_is_replaced_in_its_row() -> None:
    half = {CLIENTS: [row("a", lz4=NO, acks=NO)]}
    half[CLIENTS][0].details = {"lz4": "broken", "acks": "lost"}
    made, = replaced(half, {CLIENTS: [Row("a", "1.0", {"acks": YES})]}, ["a"])[CLIENTS]
    assert (made.cells, made.details) == (row(lz4=NO).cells, {"lz4": "broken"})
    other = Row("a", "2.0", {"acks": YES})
    assert replaced(half, {CLIENTS: [other]}, ["a"])[CLIENTS] == [other], "cells of another version are not kept"


@pytest.mark.parametrize("edition", [ONE, SEVERAL], ids=lambda edition: edition.file)
def test_the_committed_table_is_complete(edition: Edition) -> None:
    """Every client and feature has a cell for both kinds of brokers, none is worse with txbroker, and failures have a reason."""
    page = from_markdown((HERE / edition.file).read_text(encoding="utf-8"))
    kinds = (CLIENTS, TOOLS) if edition is ONE else (CLIENTS,)
    for half in (edition.ours, edition.kafka):
        rows = [row for kind in kinds for row in page[half][kind]]
        assert [row.client for row in rows] == [client.title for client in EVERY_CLIENT.values() if client.kind in kinds]
        for row in rows:
            assert {feature for feature, cell in row.cells.items() if cell != YES} <= row.details.keys(), row.client
    for kind in kinds:
        assert worse(page[edition.ours][kind], page[edition.kafka][kind]) == []
