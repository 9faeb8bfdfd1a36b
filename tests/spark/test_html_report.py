"""Reports as HTML: complete, escaped, without scripts and network, for every job."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from txbroker.console.failures import CommandFailed
from txbroker.spark.html_report import key_text, page
from txbroker.spark.svg_charts import heat_map

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000
HEAD = {"schema": 1, "txbroker": "0.1.0", "spark": "4.0.0"}
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """The elements and the text of a page; every element that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text += f"{data} "


def audit_report(**more: Any) -> dict[str, Any]:
    """Two partitions, one with a finding; keys and times."""
    gaps = {"compacted": 5, "aborted": 0, "control": 0, "expired": 0, "unexplained": 0, "first_unexplained": None}
    common = {"topic": "t<b>", "start": 0, "end": 1005, "until": 1010, "delivered_end": 1005, "waiting": 5, "written_bytes": 4096,
              "delivered_bytes": 4096, "gaps": gaps, "keys": {"keys": 10, "unseen": 2, "never": 1}}  # fmt: skip
    evil = {"offset": 7, "other": None, "timestamp_ms": NOW_MS, "key": "<script>alert(1)</script>"}
    finding = {"kind": "missing", "topic": "t<b>", "partition": 1, "count": 1, "first_offset": 7, "command": "see 'it' & <that>",
               "examples": [evil]}  # fmt: skip
    return {
        **HEAD, "job": "audit", "ok": False, "kind": "table", "topic": "t<b>", "delivered": "table /srv/<i>", "audited_ms": NOW_MS,
        "isolation_level": "read_committed", "keys_table": None, "findings": [finding], "not_checked": ["a < b"],
        "partitions": [
            {**common, "partition": 0, "written": 1000, "delivered": 1002, "equal": 1000, "events": {"superseded": 2}},
            {**common, "partition": 1, "written": 1000, "delivered": 999, "equal": 999, "events": {"missing": 1}},
        ],
        "times": [{"topic": "t<b>", "partition": partition, "start_ms": NOW_MS + hour * HOUR_MS, "end_ms": NOW_MS + (hour + 1) * HOUR_MS,
                   "written": 100 - partition, "delivered": 100, "waiting": hour // 4} for partition in range(2) for hour in range(5)],
        "ages": [{"from_ms": 0, "to_ms": 1000, "keys": 10, "unseen": 2, "never": 1, "lag_ms": 3 * HOUR_MS},
                 {"from_ms": 365 * 24 * HOUR_MS, "to_ms": None, "keys": 10, "unseen": 0, "never": 0, "lag_ms": 0}],
        **more,
    }  # fmt: skip


def test_an_audit() -> None:
    found = Page(page(audit_report()))
    words = " ".join(found.text.split())
    assert "Something is wrong: 1 record missing" in words
    assert "<script>alert(1)</script>" in words and "see 'it' & <that>" in words, "shown as text"
    assert not {"script", "iframe", "img", "i", "b<"}.intersection(tag for tag, _ in found.tags)
    addresses = [value for _, attributes in found.tags for name, value in attributes.items() if name in ("href", "src")]
    assert addresses == ["data:,"]
    for part in ("t<b>-1 [0, 1,005) 1,000 5 compacted 999 999 1 missing - 5", "1,000 5 compacted 1,002 1,000 - 2 superseded 5", "lag 3 h",
                 "to 1 s", "over 365 d", "Not checked a < b", "20 keys"):  # fmt: skip
        assert part in words, part
    styles = [attributes["class"] for tag, attributes in found.tags if tag == "rect"]
    assert {"good", "late", "bad", "lawful"} <= set(styles)
    clean = Page(page(audit_report(ok=True, findings=[], ages=[], times=[])))
    assert "Nothing is wrong: 1,999 records are the same on both sides" in clean.text


@pytest.mark.parametrize(("key", "expected"), [
    (None, "null"),
    ("", ""),
    ("x" * 80, "x" * 80),
    ("x" * 81, "x" * 79 + "\u2026"),
    ({"base64": base64.b64encode(b"\x00\xff").decode()}, "0x00ff"),
])  # fmt: skip
def test_keys(key: object, expected: str) -> None:
    assert key_text(key) == expected


def test_other_jobs() -> None:
    one = {"topic": "a", "partition": 0, "start": 0, "end": 10, "rows": 8, "doubled": 0, "compacted": 1, "aborted": 0, "control": 0,
           "expired": 0, "unexplained": 1, "first_unexplained": 4}  # fmt: skip
    offsets = {"topic": "a", "partition": 0, "start": 0, "end": 10}
    load = {**HEAD, "job": "load", "ok": False, "table": "/srv/t", "partitions": [one], "loaded": [offsets], "unchecked": [], "expired": [],
            "waiting": [offsets]}  # fmt: skip
    words = " ".join(Page(page(load)).text.split())
    assert "Something is wrong: 1 offset lost, 0 rows doubled" in words and "a-0 [0, 10) 8 1 compacted 1 lost" in words
    assert "a-0 [0, 10): in open transactions, not loaded yet" in words
    assert "Nothing new" in page({**load, "ok": True, "partitions": [], "loaded": []})
    other = {**HEAD, "job": "upsert", "ok": True, "inserted": 1234567, "ranges": [offsets], "names": ["x<y"], "of": {"key": None}}
    words = " ".join(Page(page(other)).text.split())
    assert "Done: nothing is wrong" in words and "1,234,567" in words and "x<y" in words


def test_the_command(tmp_path: Path) -> None:
    report, html = tmp_path / "report.json", tmp_path / "report.html"
    report.write_text(json.dumps(audit_report()))
    run("spark", "report", str(report), "-o", str(html))
    assert Page(html.read_text()).tags[0] == ("html", {"lang": "en"})
    report.write_text(json.dumps({"job": "audit", "schema": 1}))
    _, complaint = run("spark", "report", str(report), "-o", str(html), status=2)
    assert "the report cannot be understood (KeyError: 'partitions'); specify a file that `txbroker spark` wrote with --json" in complaint
    with pytest.raises(CommandFailed, match="newer version"):
        page({**audit_report(), "schema": 2})


def test_the_labels_of_a_map_fit_into_the_picture() -> None:
    """Whatever the font, a label begins at a positive x."""
    drawn = heat_map({"WWWWWWWWWWWWWW-0": [], "i-1": []}, 3, {})
    ends = [(float(x), float(length)) for x, length in re.findall(r'<text x="([\d.]+)"[^>]* textLength="([\d.]+)"', drawn)]
    assert len(ends) == 2
    assert all(x - length >= 0 for x, length in ends)
