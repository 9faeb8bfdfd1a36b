"""Flags and files of the administrative commands. No test here connects to a broker."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from txbroker.cli.configs import pairs
from txbroker.cli.delete_records import read_offsets
from txbroker.cli.group_reset import clamp, datetime_ms, duration_ms, read_plan, topic_partitions
from txbroker.cli.partition_flags import rules
from txbroker.console import input_files
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.names import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", 0), ("a", 1), ("a", 2), ("a", 3)]),
        ("a:2", [("a", 2)]),
        ("a:1-3", [("a", 1), ("a", 2)]),
        ("a:2-", [("a", 2), ("a", 3)]),
        ("a:-2,b:0", [("a", 0), ("a", 1), ("b", 0)]),
        (":3", [("a", 3), ("b", 3)]),
        ("[ab]:0", [("a", 0), ("b", 0)]),
        ("a:", [("a", 0), ("a", 1), ("a", 2), ("a", 3)]),
        ("c,a:9", []),
    ],
)
def test_partitions_by_rules(text: str, expected: list[tuple[str, int]]) -> None:
    there = [TopicPartition(topic, number) for topic in "ab" for number in range(4)]
    assert [partition for partition in there if any(rule.matches(partition) for rule in rules(text))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("cleanup.policy=[compact,delete], b = x y ", {"cleanup.policy": "compact,delete", "b": "x y"}),
        ("a=,b=c=d", {"a": "", "b": "c=d"}),
        ("a=[]", {"a": ""}),
        ("a=[1,2],b=[3,4]", {"a": "1,2", "b": "3,4"}),
    ],
)
def test_configurations_with_brackets(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("text", ["", "a", "=1", "a=1,", "a=1,,b=2", "[a,b]"])
def test_malformed_configurations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be comma-separated KEY=VALUE"):
        pairs(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P7D", 604_800_000), ("PT1H30M", 5_400_000), ("P1DT2H3M4.5S", 93_784_500), ("PT0S", 0), ("pt1m", 60_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "PT1H ", "P-1D", "P1Y", "P1W", "PT1.5H", f"P{10**30}D"])
def test_malformed_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a duration like P7D"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T18:00:00.123", 1769882400123),
        ("2026-01-31T18:00:00.123Z", 1769882400123),
        ("2026-01-31T18:00:00+01:00", 1769878800000),
        ("1970-01-01T00:00", 0),
    ],
)
def test_dates(text: str, expected: int) -> None:
    assert datetime_ms(text) == expected


@pytest.mark.parametrize("text", ["", "now", "2026-01-31", "2026-02-31T00:00:00", "18:00", "T", "2026-01-31T25:00:00", "1700000000000"])
def test_malformed_dates(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a date and time"):
        datetime_ms(text)


def described(names: list[str]) -> list[dict[str, Any]]:
    """The description of topics a and b with three partitions, as from an admin client."""
    return [
        {"name": name, "error_code": 0 if name in "ab" else 3, "partitions": [{"partition_index": i, "leader_id": 1} for i in range(3)]}
        for name in names
    ]


def test_partitions_of_topics() -> None:
    assert topic_partitions(["b", "a:2,0"], described) == [("a", 0), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert topic_partitions(["a:1", "a:2"], described) == [("a", 1), ("a", 2)]
    assert topic_partitions(["a:1", "a"], described) == [("a", 0), ("a", 1), ("a", 2)]
    with pytest.raises(CommandFailed, match="there is no partition a-3, a-7; see"):
        topic_partitions(["a:7,3,0"], described)
    with pytest.raises(CommandFailed, match="topic c does not exist"):
        topic_partitions(["c:0"], described)
    for spec in ("a:", ":1", "a:x", "a:1,,2", "a:-1", ""):
        with pytest.raises(BadUsage, match="it must be a topic, or a topic with partitions"):
            topic_partitions([spec], described)


def test_plans_of_offsets() -> None:
    assert read_plan("a,0,7\na,1,8\n\n", "plan", ["g"]) == {"g": {TopicPartition("a", 0): 7, TopicPartition("a", 1): 8}}
    assert read_plan('h,a,0,7\n"g,1",a,1,8', "plan", ["g,1", "h"]) == {"h": {TopicPartition("a", 0): 7}, "g,1": {TopicPartition("a", 1): 8}}
    for text in ("a,0", "a,x,7", "a,0,-1", "g,a,0,7,9", "a;0;7"):
        with pytest.raises(CommandFailed, match=r"line 1 of plan is neither topic,partition,offset"):
            read_plan(text, "plan", ["g"])
    with pytest.raises(CommandFailed, match="line 1 of plan is neither"):
        read_plan("a,0,7", "plan", ["g", "h"])
    with pytest.raises(CommandFailed, match="line 2 of plan is for group x; specify it with --group"):
        read_plan("g,a,0,7\nx,a,0,7", "plan", ["g"])
    with pytest.raises(CommandFailed, match="plan has no offsets"):
        read_plan("\n", "plan", ["g"])


def test_offsets_are_kept_inside_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    partitions = [TopicPartition("a", i) for i in range(3)]
    found = clamp(dict(zip(partitions, (3, 15, 40), strict=True)), dict.fromkeys(partitions, 10), dict.fromkeys(partitions, 20))
    assert list(found.values()) == [10, 15, 20]
    assert capsys.readouterr().err.splitlines() == [
        "New offset (3) is lower than the earliest offset for topic partition a-0. Value will be set to 10.",
        "New offset (40) is higher than the latest offset for topic partition a-2. Value will be set to 20.",
    ]


def written(directory: Path, content: object) -> str:
    path = directory / "offsets.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_file_of_offsets(tmp_path: Path) -> None:
    entries = [{"topic": "a", "partition": 0, "offset": 7}, {"topic": "a", "partition": 1, "offset": -1}]
    for version in ({"version": 1}, {}):
        offsets = read_offsets(written(tmp_path, {"partitions": entries, **version}))
        assert offsets == {TopicPartition("a", 0): 7, TopicPartition("a", 1): -1}


ENTRY = {"topic": "a", "partition": 0, "offset": 7}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ([], "has no partitions of version 1; the format is"),
        ({"partitions": []}, "has no partitions of version 1"),
        ({"partitions": [ENTRY], "version": 2}, "has no partitions of version 1"),
        ({"partitions": [ENTRY, ENTRY]}, "has partition a-0 twice; remove one of the entries"),
        ({"partitions": [{**ENTRY, "offset": "7"}]}, "has an invalid entry"),
        ({"partitions": [{**ENTRY, "offset": True}]}, "has an invalid entry"),
        ({"partitions": [{**ENTRY, "offset": -2}]}, "has an invalid entry"),
        ({"partitions": [{**ENTRY, "partition": 2**31}]}, "has an invalid entry"),
        ({"partitions": [{"topic": "a", "partition": 0}]}, "has an invalid entry"),
        ({"partitions": ["a:0:7"]}, "has an invalid entry"),
    ],
)
def test_malformed_files_of_offsets(content: object, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        read_offsets(written(tmp_path, content))


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="nowhere cannot be read: No such file or directory; correct the path"):
        input_files.read_json(str(tmp_path / "nowhere"))
    (tmp_path / "latin").write_bytes("{ä".encode("latin-1"))
    with pytest.raises(CommandFailed, match="latin is not UTF-8 at byte 1"):
        input_files.read_json(str(tmp_path / "latin"))
    monkeypatch.setattr(input_files, "BYTES_MAX", 10)
    with pytest.raises(CommandFailed, match=r"offsets\.json is larger than 10 bytes"):
        input_files.read_text(written(tmp_path, "x" * 11))
    assert input_files.read_text(written(tmp_path, "x" * 10)) == "x" * 10
