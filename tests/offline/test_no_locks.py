"""Tools that only read a log directory take no lock: a broker that starts at that moment must not find its directory in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.offline.support import ours
from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S
from txbroker.cluster.node_data import encode_config
from txbroker.cluster.node_paths import topic_entity
from txbroker.cluster.tree.interface import Create
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import write_tree
from txbroker.log.directory import LOCK_FILE
from txbroker.log.os_disk import OsDisk

# Runs a command and exits with 77 when it locks any file.
WATCHED = """
import os, sys
def hook(event, arguments):
    if event in ("fcntl.lockf", "fcntl.flock"):
        os._exit(77)
sys.addaudithook(hook)
from txbroker.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = ours(tmp_path)
    config = topic_entity("orders").path
    nodes = [Create("/config"), Create("/config/topics"), Create(config, encode_config({"cleanup.policy": "compact"}))]
    write_tree(str(data / FILE_NAME), nodes, OsDisk())
    (data / LOCK_FILE).touch()
    return data


def ended(*arguments: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run([sys.executable, "-c", WATCHED, *arguments], env=environment, capture_output=True, timeout=PATIENCE_S).returncode


@pytest.mark.parametrize("tool", [
    ["log", "verify", "DATA"], ["log", "repair", "DATA"], ["log", "extract", "DATA"], ["log", "stats", "DATA"],
    ["log-cleaner", "--dry-run", "--log-dir", "DATA", "--topic", "orders"], ["audit", "keys", "--log-dir", "DATA", "--topic", "orders"],
    ["config", "--print", "--override", "log.dirs=DATA"],
], ids=" ".join)  # fmt: skip
def test_a_tool_that_reads_takes_no_lock(data: Path, tool: list[str]) -> None:
    assert ended(*(argument.replace("DATA", str(data)) for argument in tool)) != 77


def test_a_lock_is_detected(data: Path) -> None:
    assert ended("log", "repair", str(data), "--yes") == 77, "the check works: a repair locks the directory"
