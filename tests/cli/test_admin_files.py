"""What the administrative commands make of the flags and files that they are given. Nothing here connects to anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txbroker.cli import files
from txbroker.cli.delete_records import read_offsets
from txbroker.cli.failures import CommandFailed
from txbroker.cli.partitions import Partition, rules


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
    there = [Partition(topic, number) for topic in "ab" for number in range(4)]
    assert [partition for partition in there if any(rule.matches(partition) for rule in rules(text))] == expected


def written(directory: Path, content: object) -> str:
    path = directory / "offsets.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_file_of_offsets(tmp_path: Path) -> None:
    entries = [{"topic": "a", "partition": 0, "offset": 7}, {"topic": "a", "partition": 1, "offset": -1}]
    for version in ({"version": 1}, {}):
        assert read_offsets(written(tmp_path, {"partitions": entries, **version})) == {Partition("a", 0): 7, Partition("a", 1): -1}


ENTRY = {"topic": "a", "partition": 0, "offset": 7}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ([], "is not of version 1 with partitions; it must be like"),
        ({"partitions": []}, "is not of version 1 with partitions"),
        ({"partitions": [ENTRY], "version": 2}, "is not of version 1"),
        ({"partitions": [ENTRY, ENTRY]}, "has partition a-0 twice; leave one of them out"),
        ({"partitions": [{**ENTRY, "offset": "7"}]}, "has a bad entry"),
        ({"partitions": [{**ENTRY, "offset": True}]}, "has a bad entry"),
        ({"partitions": [{**ENTRY, "offset": -2}]}, "has a bad entry"),
        ({"partitions": [{**ENTRY, "partition": 2**31}]}, "has a bad entry"),
        ({"partitions": [{"topic": "a", "partition": 0}]}, "has a bad entry"),
        ({"partitions": ["a:0:7"]}, "has a bad entry"),
    ],
)
def test_a_bad_file_of_offsets(content: object, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        read_offsets(written(tmp_path, content))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="nowhere cannot be read: No such file or directory; correct the path"):
        files.read_json(str(tmp_path / "nowhere"))
    (tmp_path / "latin").write_bytes("{ä".encode("latin-1"))
    with pytest.raises(CommandFailed, match="latin is not UTF-8 at byte 1"):
        files.read_json(str(tmp_path / "latin"))
    monkeypatch.setattr(files, "BYTES_MAX", 10)
    with pytest.raises(CommandFailed, match=r"offsets\.json is larger than 10 bytes"):
        files.read_text(written(tmp_path, "x" * 11))
    assert files.read_text(written(tmp_path, "x" * 10)) == "x" * 10
