"""Environments: that of the tools, those of the Pythons to build for, and empty ones to install in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from release.steps import Refused, run

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_MARK = "requirements.txt"  # the copy is written when all of them are installed


class Tools:
    """The tools of the release, in a virtual environment that later releases use again."""

    def __init__(self, place: Path, python: str | Path) -> None:
        self.place = place
        mark = place / _MARK
        if mark.exists() and mark.read_text() == REQUIREMENTS.read_text() and (place / "bin" / "python").exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        run(python, "-m", "venv", place, cwd=place.parent)
        run(place / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile", "-r", REQUIREMENTS, cwd=place.parent)
        shutil.copy(REQUIREMENTS, mark)

    def run(self, program: str, *arguments: str | Path, cwd: Path, **environment: str) -> str:
        """Run one of the tools; it finds the others on its PATH."""
        path = f"{self.place / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        return run(self.place / "bin" / program, *arguments, cwd=cwd, environment={"PATH": path, **environment})

    def pip(self, python: Path, *arguments: str | Path, cwd: Path, **environment: str) -> str:
        """Run pip for another Python, which needs none."""
        return self.run("python", "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments, cwd=cwd, **environment)


def build_environment(tools: Tools, place: Path, python: str | Path) -> Path:
    """Create an environment with what pyproject.toml requires for a build; returns its Python."""
    if not place.exists():
        made = empty_environment(place, python)
        requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        tools.pip(made, "install", "-q", "--no-compile", *requires, cwd=place.parent)
    return place / "bin" / "python"


def empty_environment(place: Path, python: str | Path) -> Path:
    """Create a virtual environment with nothing in it, not even pip; returns its Python."""
    run(python, "-m", "venv", "--without-pip", place, cwd=place.parent)
    return place / "bin" / "python"


def pythons() -> dict[str, Path]:
    """The Pythons of this machine, on PATH or installed by pyenv, by the versions that wheels are built for."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = {}
    for version in VERSIONS:
        places = [Path(place, f"python{version}") for place in os.get_exec_path()]
        places += sorted(home.glob(f"versions/{version}.*/bin/python{version}"))
        working = next((path for path in places if os.access(path, os.X_OK) and _works(path, version)), None)
        if working is not None:
            found[version] = working
    return found


def python_version(python: Path) -> str:
    """Major and minor version; Refused for one that wheels are not built for."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", cwd=Path.cwd()).strip()
    if version not in VERSIONS:
        raise Refused(f"{python} is Python {version}; wheels are built for {', '.join(VERSIONS)}")
    return version


def _works(python: Path, version: str) -> bool:
    """Whether it runs, and has what virtual environments and compiled modules need. A shim of pyenv may not run."""
    probe = (
        "import os, sys, sysconfig, venv;"
        "sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1]"
        " or not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    )
    ended = subprocess.run([python, "-c", probe, version], capture_output=True, check=False)
    return ended.returncode == 0
