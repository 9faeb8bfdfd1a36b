"""What is installed: a wheel has the package, the typing mark, the Twisted plugin and the command, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT

SOURCES = ("txbroker", "twisted", "setup.cfg", "pyproject.toml", "README.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: setuptools leaves its traces where it builds."""
    place = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache"))
        elif source.exists():
            shutil.copy(source, place / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "out", "."]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (built,) = (place / "out").glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.process
def test_the_wheel_has_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "txbroker").rglob("*.py")}
    packed = set(wheel.namelist())
    assert modules <= packed
    assert {"txbroker/py.typed", "twisted/plugins/txbroker_plugin.py"} <= packed
    assert "twisted/plugins/__init__.py" not in packed
    assert {Path(name).parts[0] for name in packed if not Path(name).parts[0].endswith(".dist-info")} == {"txbroker", "twisted"}


@pytest.mark.process
def test_the_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "txbroker = txbroker.cli.main:main" in wheel.read(entry_points).decode()
