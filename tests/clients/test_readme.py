"""The README's program, as it stands there, prints what stands below it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.server import Server

SECTION = "## Keep the newest change, not the last one"
IN_THE_README = "127.0.0.1:9092"


def blocks(heading: str) -> list[str]:
    """The indented blocks of a section, without their indentation."""
    section = (CHECKOUT / "README.md").read_text().split(f"\n{heading}\n")[1].split("\n## ")[0]
    found: list[list[str]] = []
    inside = False
    for line in section.splitlines():
        if line.startswith("    "):
            found += [] if inside else [[]]
            inside = True
        elif line:
            inside = False
        if inside:
            found[-1].append(line)
    return [textwrap.dedent("\n".join(lines)).strip() + "\n" for lines in found]


def test_an_out_of_order_change_stream_in_the_three_strategies(broker: Server) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("KIP-280 is in no release of Apache Kafka")
    code, printed, *_ = blocks(SECTION)
    assert "compaction.strategy" in code and IN_THE_README in code
    program = [sys.executable, "-c", code.replace(IN_THE_README, broker.address)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout, ended.returncode) == (printed, 0), ended.stderr
