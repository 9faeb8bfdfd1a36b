"""`make changed`: which test files a change chooses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.support.changed import ALWAYS, changed_files, files_for

FILES = {
    "txbroker/log/segment.py": "from txbroker.wire import batch\n",
    "txbroker/log/recovery.py": "",
    "txbroker/wire/batch.py": "",
    "txbroker/clock.py": "",
    "simulation/cluster.py": "from txbroker.clock import Clock\n",
    "tests/test_tidy.py": "",
    "tests/conftest.py": "from simulation import cluster\n",
    "tests/log/test_segment.py": "from txbroker.log.segment import Segment\n",
    "tests/log/helper.py": "def load():\n    import txbroker.log.recovery\n",
    "tests/log/test_by_helper.py": "from tests.log import helper\n",
    "tests/wire/test_batch.py": "from txbroker.wire.batch import Batch\n",
    "tests/peers/conftest.py": "from tests.support.peer import peer\n",
    "tests/peers/test_peers.py": "",
    "tests/support/peer.py": "import simulation.cluster\n",
    "tests/docs/test_links.py": "",
    "docs/index.md": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(("changed", "chosen"), [
    ([], []),
    # A package as a whole, also through the tests' own modules and imports inside functions. What it imports itself does not count.
    (["txbroker/log/segment.py"], ["tests/log/test_by_helper.py", "tests/log/test_segment.py"]),
    (["txbroker/log/deleted.py"], ["tests/log/test_by_helper.py", "tests/log/test_segment.py"]),
    (["txbroker/wire/batch.py"], ["tests/wire/test_batch.py"]),
    # Through the conftest.py of a folder, but not through that of all tests.
    (["txbroker/clock.py"], ["tests/peers/test_peers.py"]),
    (["tests/support/peer.py"], ["tests/peers/test_peers.py"]),
    (["tests/peers/conftest.py"], ["tests/peers/test_peers.py"]),
    (["tests/log/helper.py"], ["tests/log/test_by_helper.py"]),
    (["tests/wire/test_batch.py"], ["tests/wire/test_batch.py"]),
    (["docs/index.md"], ["tests/docs/test_links.py"]),
])  # fmt: skip
def test_the_files_that_a_change_chooses(root: Path, changed: list[str], chosen: list[str]) -> None:
    assert files_for(root, changed) == sorted([*chosen, ALWAYS])


def test_commits_new_and_deleted_files_are_changes(root: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false", *arguments], cwd=root,
                       check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("checkout", "-q", "-b", "work")
    (root / "txbroker/log/recovery.py").write_text("x = 1\n")
    git("commit", "-q", "-a", "-m", "two")
    (root / "txbroker/clock.py").unlink()
    (root / "txbroker/new.py").write_text("")
    assert changed_files(root, "main") == ["txbroker/clock.py", "txbroker/log/recovery.py", "txbroker/new.py"]
    with pytest.raises(subprocess.CalledProcessError):
        changed_files(root, "no-such")


def test_the_project_itself() -> None:
    chosen = files_for(CHECKOUT, ["txbroker/log/segment.py"])
    assert {"tests/log/test_read.py", "tests/damage/test_at_start.py", ALWAYS} <= set(chosen)
    assert "tests/wire/test_varint.py" not in chosen
