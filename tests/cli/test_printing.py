"""The output of `txbroker consume`, tables, and progress."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cli.partition_flags import with_leaders
from txbroker.cli.progress import Progress
from txbroker.cli.record_formatter import formatter, formatter_properties
from txbroker.cli.results import Column, Results
from txbroker.cli.tables import table
from txbroker.cli.topic_describe import description, folded_description, plain_description, terminal_description
from txbroker.console.texts import size_text
from txbroker.names import TopicPartition


def record(**fields: Any) -> Any:
    place = {"topic": "t", "partition": 2, "offset": 17}
    usual = {**place, "timestamp_type": 0, "timestamp": 1700000000000, "leader_epoch": 3, "headers": [], "key": b"k", "value": b"v"}
    return SimpleNamespace(**{**usual, **fields})


EVERYTHING = {f"print.{field}": "true" for field in ("timestamp", "partition", "offset", "headers", "key", "value")}


@pytest.mark.parametrize(
    ("properties", "fields", "expected"),
    [
        ({}, {}, b"v\n"),
        ({}, {"value": b"\xff\n\x00"}, b"\xff\n\x00\n"),
        ({}, {"value": None}, b"null\n"),
        ({"null.literal": "-"}, {"value": None}, b"-\n"),
        ({"print.key": "true"}, {"key": None}, b"null\tv\n"),
        ({"print.key": "true", "key.separator": " = ", "line.separator": ""}, {}, b"k = v"),
        ({"print.key": "true", "print.value": "false"}, {}, b"k\n"),
        (EVERYTHING, {}, b"CreateTime:1700000000000\tPartition:2\tOffset:17\tNO_HEADERS\tk\tv\n"),
        (EVERYTHING, {"timestamp_type": 1}, b"LogAppendTime:1700000000000\tPartition:2\tOffset:17\tNO_HEADERS\tk\tv\n"),
        (EVERYTHING, {"timestamp_type": None, "timestamp": -1}, b"NO_TIMESTAMP\tPartition:2\tOffset:17\tNO_HEADERS\tk\tv\n"),
        ({"print.epoch": "true"}, {}, b"Epoch:3\tv\n"),
        ({"print.epoch": "true"}, {"leader_epoch": -1}, b"Epoch:NOT_PRESENT\tv\n"),
        ({"print.headers": "true"}, {"headers": [("a", b"1"), ("ж", None), ("a", b"")]}, "a:1,ж:null,a:\tv\n".encode()),
        ({"print.headers": "true", "headers.separator": ";"}, {"headers": [("a", b"1"), ("b", b"2")]}, b"a:1;b:2\tv\n"),
    ],
)
def test_records(properties: dict[str, str], fields: dict[str, Any], expected: bytes) -> None:
    assert formatter(None, formatter_properties(properties), as_json=False)(record(**fields)) == expected


def test_records_as_json() -> None:
    version = (5).to_bytes(8, "big")  # of compaction.strategy=header: valid UTF-8, but not text
    json_line = formatter(None, formatter_properties({}), as_json=True)
    line = json_line(record(key=b"\xff\x00", value="line\nж".encode(), headers=[("a", b"1"), ("a", None), ("b", b"\x80"), ("v", version)]))
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t", "partition": 2, "offset": 17, "timestamp": 1700000000000, "timestamp_type": "CreateTime",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "b", "value": {"base64": "gA=="}},
                    {"key": "v", "value": {"base64": "AAAAAAAAAAU="}}],
        "key": {"base64": "/wA="}, "value": "line\nж",
    }  # fmt: skip
    old = json.loads(json_line(record(timestamp_type=None, timestamp=-1, value=None, key=None)))
    assert [old[key] for key in ("timestamp", "timestamp_type", "key", "value")] == [None] * 4


COLUMNS = (Column("name", "NAME"), Column("brokers", "BROKERS"), Column("lag", "LAG"))
ROWS = [{"name": "ж", "brokers": [1, 2], "lag": 0, "more": True}, {"name": "a longer one", "brokers": [], "lag": None, "more": False}]


def test_rows_are_json_or_a_table_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Results(True, 80).rows(COLUMNS, ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS, "all fields, one object per line"
    for width in (None, 80):
        Results(False, width).rows(COLUMNS, ROWS)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines] == [["NAME", "BROKERS", "LAG"], ["ж", "1,2", "0"], ["a", "longer", "one", "-", "-"]]
    Results(False, None).rows(COLUMNS, ROWS, lambda row: f"{row['name']}:{row['lag']}")
    assert capsys.readouterr().out == "ж:0\na longer one:None\n"
    Results(False, None).rows([Column("name", "NAME")], [{"name": "x" * 500}])
    assert capsys.readouterr().out == f"NAME\n{'x' * 500}\n", "one line per row for scripts"


def test_results_are_a_sentence_or_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    Results(False, None).done("Created topic a.", topic="a", action="created")
    Results(True, None).done("Created topic a.", topic="a", action="created")
    assert capsys.readouterr().out == 'Created topic a.\n{"topic": "a", "action": "created"}\n'


def test_a_table_that_fits() -> None:
    lines = table(("Partition", "Isr"), [("0", "1,2,3"), ("10", "1")], 80)
    assert lines == ["Partition  Isr", "0          1,2,3", "10         1"]


words = st.text("abc ,-", min_size=0, max_size=40)


@given(st.lists(st.tuples(words, words, words), max_size=5), st.integers(32, 90))
def test_no_table_is_wider_than_the_terminal_and_nothing_is_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = table(("first", "second", "third"), rows, width)
    assert all(len(line) <= width for line in lines)
    letters = sorted("".join(cell for row in [("first", "second", "third"), *rows] for cell in row).replace(" ", ""))
    assert sorted("".join(lines).replace(" ", "")) == letters


@given(st.lists(st.lists(words, min_size=9, max_size=9), max_size=3), st.integers(20, 60))
def test_a_table_of_many_columns_fits_a_narrow_terminal(rows: list[list[str]], width: int) -> None:
    header = [f"COLUMN-{i}" for i in range(9)]
    lines = table(header, rows, width)
    assert all(len(line) <= width for line in lines)
    text = "".join(lines).replace(" ", "")
    assert all(cell.replace(" ", "") in text for row in rows for cell in row)


def test_control_characters_in_names_are_escaped() -> None:
    assert table(["NAME"], [["a\x1b[2Jb\r\nc"], ["żó字"]], 80) == ["NAME", r"a\x1b[2Jb\r\nc", "żó字"]


TOPIC = {
    "name": "orders",
    "topic_id": "1293b746-9cd8-4184-ab29-1c3255fa5059",
    "partitions": [
        {"partition_index": 1, "leader_id": -1, "replica_nodes": [1, 3], "isr_nodes": [3]},
        {"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1, 2]},
    ],
}
CONFIGS = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


def test_a_description_for_scripts_is_kafkas() -> None:
    assert plain_description(description(TOPIC, CONFIGS)) == [
        "Topic: orders\tTopicId: EpO3RpzYQYSrKRwyVfpQWQ\tPartitionCount: 2\tReplicationFactor: 2\t"
        "Configs: cleanup.policy=compact,delete,retention.ms=-1",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2",
        "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 1,3\tIsr: 3",
    ]


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_description_for_people_fits_the_terminal(width: int) -> None:
    lines = terminal_description(description(TOPIC, CONFIGS), width)
    assert all(len(line) <= width for line in lines)
    text = " ".join(lines)
    for part in ("Topic: orders", "PartitionCount: 2", "cleanup.policy=compact", "retention.ms=-1", "Leader", "none", "1,3"):
        assert part in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_400, "99.4 kB"), (99_600, "100 kB"), (999_600, "1.0 MB"), (41_234_567, "41.2 MB"),
     (5 * 10**12, "5.0 TB"), (5 * 10**16, "50000 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_progress_is_shown_regularly_and_at_the_end() -> None:
    now_s = 0.0
    stream = io.StringIO()
    progress = Progress(stream, lambda: now_s, total=1000)
    progress.add(100)
    assert stream.getvalue() == "", "no progress for quick work"
    for _ in range(8):
        now_s += 0.1
        progress.add(100)
    progress.finish()
    shown = stream.getvalue().split("\r")[1:]
    assert [text.split(",")[0] for text in shown] == ["6 records", "9 records", "9 records"]
    assert shown[0] == "6 records, 600 B of 1.0 kB (60 %), 12 records/s, 1 s left\x1b[K"
    assert shown[-1] == "9 records, 900 B of 1.0 kB (90 %), 11 records/s\x1b[K\n"


def test_progress_by_a_fraction_of_the_work() -> None:
    now_s = 0.0
    stream = io.StringIO()
    progress = Progress(stream, lambda: now_s)
    for elapsed_s, fraction in ((10.0, 0.1), (20.0, 0.05), (40.0, 0.01), (100.0, 0.99)):
        now_s = elapsed_s
        progress.add(1000, 1, fraction)
    progress.finish()
    assert stream.getvalue().split("\r")[1:] == [
        "1 record, 1.0 kB (10 %), 0 records/s, 1 min 30 s left\x1b[K",
        "2 records, 2.0 kB (10 %), 0 records/s, 3 min left\x1b[K",
        "3 records, 3.0 kB (10 %), 0 records/s, 6 min left\x1b[K",
        "4 records, 4.0 kB (99 %), 0 records/s, 1 s left\x1b[K",
        "4 records, 4.0 kB (99 %), 0 records/s\x1b[K\n",
    ]


def test_quick_work_and_output_to_files_show_no_progress() -> None:
    stream = io.StringIO()
    progress = Progress(stream, lambda: 0.0)
    progress.add(5)
    progress.finish()
    assert stream.getvalue() == ""
    silent = Progress(None, lambda: 0.0)
    silent.add(5)
    silent.finish()
    assert (silent.records, silent.bytes) == (1, 5)


@pytest.mark.parametrize(
    ("partitions", "line"),
    [
        ([(1, [1]), (1, [1])], "2 partitions: all with a leader, all replicas in sync (see --topic __consumer_offsets)"),
        ([(1, [1])], "1 partition: all with a leader, all replicas in sync (see --topic __consumer_offsets)"),
        ([(-1, []), (1, [1])], "2 partitions: 1 without a leader, 1 under-replicated (see --topic __consumer_offsets)"),
    ],
)
def test_the_partitions_of_an_internal_topic_fit_on_a_line(partitions: list[tuple[int, list[int]]], line: str) -> None:
    rows = [
        {"partition_index": number, "leader_id": leader, "replica_nodes": [1], "isr_nodes": isr}
        for number, (leader, isr) in enumerate(partitions)
    ]
    topic = {"name": "__consumer_offsets", "topic_id": "", "is_internal": True, "partitions": rows}
    lines = folded_description(description(topic, {}), 100)
    assert lines[0].startswith("Topic: __consumer_offsets  TopicId: none  PartitionCount: ")
    assert lines[1:] == [f"  {line}"]


def test_partitions_without_a_leader_are_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    led, others = TopicPartition("t", 0), [TopicPartition("t", number) for number in range(1, 6)]
    assert with_leaders({led: 1, **dict.fromkeys(others, -1)}) == [led]
    assert capsys.readouterr().err == (
        "5 partitions (t-1, t-2, t-3, ...) have no leader and are omitted; see `txbroker topics --describe --unavailable-partitions`\n"
    )
    assert with_leaders({others[0]: -1}) == []
    assert capsys.readouterr().err.startswith("partition t-1 has no leader and is omitted; see ")
