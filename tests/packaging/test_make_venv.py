"""`make venv` prefers a Python that was built with profile-guided optimisation, and says which one it took and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT

SCRIPT = CHECKOUT / "packaging" / "make-venv"
PLAIN = {"CONFIG_ARGS": "'--prefix=/usr/local'", "PY_CFLAGS": "-O3", "PY_CFLAGS_NODIST": "", "PGO_PROF_USE_FLAG": "-fprofile-use"}
OPTIMISED = {**PLAIN, "CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}
FLAGS_REPORTED = {**PLAIN, "PY_CFLAGS_NODIST": "-fprofile-use -fprofile-correction"}
DEBIAN = {**PLAIN, "CONFIG_ARGS": "'--with-wheel-pkg-dir=/usr/share/python-wheels/'", "PGO_PROF_USE_FLAG": ""}


def interpreter(place: Path, name: str, variables: dict[str, str], *, version: tuple[int, int] = (3, 11)) -> Path:
    """This Python under another name, whose sysconfig reports `variables`; it records instead of creating an environment."""
    place.mkdir(exist_ok=True)
    changes = place / f"{name}.d"
    changes.mkdir()
    (changes / "sitecustomize.py").write_text(
        f"import sys, sysconfig\nsysconfig.get_config_vars().update({variables!r})\nsys.version_info = {version} + (0, 'final', 0)\n"
    )
    program = place / name
    program.write_text(f'#!/bin/sh\n[ "$1" = -m ] && echo made "$0" && exit\nPYTHONPATH={changes} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return program


def make_venv(path: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", SCRIPT, "the-venv", *arguments], env={"PATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("optimised", [OPTIMISED, FLAGS_REPORTED, DEBIAN], ids=["configure", "flags", "debian"])
def test_an_optimised_python_further_down_the_path_is_preferred(tmp_path: Path, optimised: dict[str, str]) -> None:
    interpreter(tmp_path / "a", "python3.11", PLAIN)
    interpreter(tmp_path / "a", "python3", PLAIN)
    wanted = interpreter(tmp_path / "b", "python3.12", optimised, version=(3, 12))
    ended = make_venv(f"{tmp_path}/a:{tmp_path}/b")
    assert ended.returncode == 0, ended.stderr
    said, made = ended.stdout.splitlines()
    assert f"from {wanted}: " in said and "built with profile-guided optimisation" in said
    assert made == f"made {wanted}"


def test_a_plain_python_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    interpreter(tmp_path / "a", "python3.11", OPTIMISED, version=(3, 10))
    taken = interpreter(tmp_path / "b", "python3", PLAIN)
    ended = make_venv(f"{tmp_path}/a:{tmp_path}/b")
    assert f"from {taken}: " in ended.stdout and "a quarter slower (no Python with it is on PATH)" in ended.stdout


def test_a_python_that_is_named_is_taken(tmp_path: Path) -> None:
    interpreter(tmp_path / "a", "python3.11", OPTIMISED)
    named = interpreter(tmp_path / "b", "python3.13", PLAIN, version=(3, 13))
    ended = make_venv(f"{tmp_path}/a", named)
    assert f"from {named}: " in ended.stdout and "(as requested with PYTHON)" in ended.stdout


def test_without_a_python_the_error_names_the_remedy(tmp_path: Path) -> None:
    ended = make_venv(str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "make PYTHON=/path/to/python3.11" in ended.stderr
    old = interpreter(tmp_path, "python3", OPTIMISED, version=(3, 10))
    ended = make_venv(os.environ["PATH"], old)
    assert ended.returncode == 1 and f"{old} is not Python 3.11 or newer" in ended.stderr
