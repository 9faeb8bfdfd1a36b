"""The commit of this code, from the files of real git repositories and from the file of a build."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from txbroker.build_info import COMMIT_FILE, UNKNOWN, find_commit


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = tmp_path / "checkout"
    (place / "txbroker").mkdir(parents=True)
    (place / "setup.cfg").write_text("")
    git(place, "init")
    git(place, "add", ".")
    git(place, "commit", "-m", "first")
    return place


def found_in(place: Path) -> str:
    return find_commit(place / "txbroker", place)


def test_each_state_of_a_checkout(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert found_in(checkout) == head
    git(checkout, "pack-refs", "--all")
    assert not list((checkout / ".git" / "refs" / "heads").iterdir())
    assert found_in(checkout) == head, "in packed-refs"
    git(checkout, "checkout", "--detach")
    assert found_in(checkout) == head, "detached"


def test_a_worktree(checkout: Path) -> None:
    git(checkout, "worktree", "add", "-b", "feature/one", "../other")
    other = checkout.parent / "other"
    git(other, "commit", "--allow-empty", "-m", "second")
    assert found_in(other) == git(other, "rev-parse", "HEAD") != found_in(checkout)
    git(other, "pack-refs", "--all")
    assert found_in(other) == git(other, "rev-parse", "HEAD")


def test_without_git_it_is_the_one_of_the_build_or_unknown(tmp_path: Path, checkout: Path) -> None:
    package = tmp_path / "site-packages" / "txbroker"
    package.mkdir(parents=True)
    assert find_commit(package, package.parent) == UNKNOWN
    (package / COMMIT_FILE).write_text("nonsense\n")
    assert find_commit(package, package.parent) == UNKNOWN
    (package / COMMIT_FILE).write_text("1" * 40 + "\n")
    assert find_commit(package, package.parent) == "1" * 40
    (checkout / "setup.cfg").unlink()
    assert found_in(checkout) == UNKNOWN, "an installation inside another repository"
    (checkout / "setup.cfg").write_text("")
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/none\n")
    assert found_in(checkout) == UNKNOWN
