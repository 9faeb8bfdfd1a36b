"""The packages and sources of a project in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from compat.projects.project import Project
from tests.support import cache
from tests.support.cache import Missing

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


class Installed(NamedTuple):
    """A project: `packages` is for sys.path, `sources` has the files of its source archive, if its tests are only there."""

    project: Project
    packages: Path
    sources: Path

    def environment(self, checkout: Path) -> dict[str, str]:
        """The environment of a Python that has the project and the modules of this checkout, besides its own packages."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join((str(self.packages), str(checkout)))}


def install(project: Project) -> Installed:
    """Install what is not in the cache yet; Missing."""
    requirements = (f"{project.name}=={project.version}", *project.requirements)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache.directory() / "compat" / f"{project.name}-{project.version}-python{python}"
    installed = Installed(project, folder / "packages", folder / "sources")
    mark = folder / ".complete"
    if mark.exists() and mark.read_text().split() == list(requirements):
        return installed
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:  # others may install it at the same time
        fresh = Path(name) / "fresh"
        _pip("install", "--target", str(fresh / "packages"), *requirements)
        if not project.installs_tests:
            _download(project, Path(name), fresh / "sources")
        (fresh / mark.name).write_text("\n".join(requirements))
        if folder.exists():
            folder.rename(Path(name) / "old")
        fresh.rename(folder)
    return installed


def _download(project: Project, place: Path, target: Path) -> None:
    """Unpack the source archive of a project, without its first folder."""
    _pip("download", "--no-deps", "--no-binary", project.name, "--dest", str(place), f"{project.name}=={project.version}")
    (archive,) = place.glob("*.tar.gz")
    shutil.unpack_archive(archive, place / "unpacked")
    (only,) = (place / "unpacked").iterdir()
    only.rename(target)


def _pip(*arguments: str) -> None:
    ended = subprocess.run([*_PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        raise Missing(f"pip {' '.join(arguments)} failed:\n{ended.stdout[-2000:]}")
