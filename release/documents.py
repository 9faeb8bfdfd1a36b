"""What is beside wheels, sdist and image: notes, constraints, the bill of materials (CycloneDX) and checksums."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

from release.environments import Tools
from release.source import Source
from release.steps import Refused

CHECKSUMS = "SHA256SUMS"
NOTES = "RELEASE_NOTES.md"


def write_notes(source: Source, path: Path) -> None:
    """Write the notes: the section of CHANGELOG.md with a heading."""
    where = f"Source: {source.address}\n" if source.address else ""
    path.write_text(f"# txbroker {source.version}\n\nCommit {source.commit}. {where}Checksums: {CHECKSUMS}.\n\n{source.notes}\n")


def write_constraints(tools: Tools, python: Path, path: Path) -> None:
    """Write the versions of the dependencies that the wheel was checked with, for `pip install -c`."""
    listed = tools.pip(python, "list", "--format", "json", cwd=path.parent)
    lines = [f"{package['name']}=={package['version']}" for package in json.loads(listed) if package["name"] != "txbroker"]
    path.write_text("# The versions that this release was checked with.\n" + "".join(f"{line}\n" for line in sorted(lines, key=str.lower)))


def write_bill(tools: Tools, source: Source, python: Path, path: Path) -> None:
    """Write the software bill of materials of an environment that has only txbroker and what it requires."""
    root = path.with_suffix(".toml")
    root.write_text(f'[project]\nname = "txbroker"\nversion = "{source.version}"\nlicense = "Apache-2.0"\n')
    try:
        tools.run(
            "cyclonedx-py", "environment", "--pyproject", root, "--output-reproducible", "--validate", "--of", "JSON", "-o", path, python,
            cwd=path.parent,
        )  # fmt: skip
    finally:
        root.unlink()
    listed = json.loads(tools.pip(python, "list", "--format", "json", cwd=path.parent))
    bill = json.loads(path.read_text(encoding="utf-8"))
    named = {(part["name"].lower(), part["version"]) for part in [*bill["components"], bill["metadata"]["component"]]}
    missing = [package["name"] for package in listed if (package["name"].lower(), package["version"]) not in named]
    if missing:
        raise Refused(f"{path.name} does not list {', '.join(missing)}")


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file below a folder, as `sha256sum -c` reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines))


def other_files(folder: Path) -> list[str]:
    """The files below a folder that are not those of a release, by its checksums."""
    checksums = folder / CHECKSUMS
    listed = {line.partition("  ")[2] for line in checksums.read_text().splitlines()} if checksums.exists() else set()
    return sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - listed - {CHECKSUMS})


def check_sdist(sdist: Path, tracked: Iterable[str]) -> None:
    """Refused unless an sdist has every file of the repository, and besides them only what setuptools writes."""
    with tarfile.open(sdist) as files:
        names = {member.name.partition("/")[2] for member in files.getmembers() if member.isfile()}
    written = {"PKG-INFO", "txbroker/_commit.txt"} | {name for name in names if name.startswith("txbroker.egg-info/")}
    missing, more = sorted(set(tracked) - names), sorted(names - written - set(tracked))
    if missing or more:
        raise Refused(f"{sdist.name} is not the repository: missing {missing[:5]}, not in the repository {more[:5]}; see MANIFEST.in")
