"""What is released: version, commit, notes and addresses, each from the one place that has it, and the files of the commit."""

from __future__ import annotations

import configparser
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from release.steps import Refused, note, run

UNRELEASED = "Unreleased"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?[ ]*$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """One commit of the repository. `notes` is Markdown; `address` is that of the repository, empty if there is none."""

    version: str
    commit: str
    seconds: int  # when the commit was made, since the epoch
    notes: str
    address: str

    @property
    def says(self) -> str:
        """What `txbroker --version` prints."""
        return f"txbroker {self.version} (commit {self.commit[:12]})"


def read(root: Path, *, trial: bool) -> Source:
    """Find out what is to be released. Refused where it is not fit for a release; a trial only reports it."""
    try:
        commit = run("git", "rev-parse", "HEAD", cwd=root).strip()
    except Refused as problem:
        raise Refused(f"{root} is not a git checkout with a commit, and a release is made from a commit") from problem
    seconds = int(run("git", "show", "-s", "--format=%ct", "HEAD", cwd=root))
    version = version_of((root / "txbroker" / "__init__.py").read_text(encoding="utf-8"))
    problems = []
    changed = run("git", "status", "--porcelain", cwd=root).splitlines()
    if changed:
        problems.append(f"{len(changed)} changed or unknown files, {changed[0][3:]} for one: commit or remove them (git status)")
    tagged = run("git", "tag", "--list", f"v{version}", "--format=%(objectname) %(*objectname)", cwd=root).split()
    if tagged and tagged[-1] != commit:
        problems.append(f"the tag v{version} is another commit, {tagged[-1][:12]}: raise __version__ in txbroker/__init__.py")
    notes, flaw = notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if flaw:
        problems.append(flaw)
    address = address_of((root / "setup.cfg").read_text(encoding="utf-8"))
    if not address:
        problems.append("setup.cfg has no address of the repository: write Source = https://... below project_urls")
    if problems and not trial:
        raise Refused("\n  ".join(["this is no release yet:", *problems, "To build it all the same, for a trial: make release TRIAL=1"]))
    for line in problems:
        note(f"only a trial: {line}")
    return Source(version, commit, seconds, notes, address)


def version_of(module: str) -> str:
    """The version by the text of txbroker/__init__.py."""
    found = _VERSION.search(module)
    if found is None:
        raise Refused('txbroker/__init__.py has no line __version__ = "..."')
    return found[1]


def notes_of(changelog: str, version: str) -> tuple[str, str]:
    """The section of a version, or of what is unreleased, without its heading; and what is wrong with it, or an empty text."""
    heads = list(_SECTION.finditer(changelog))
    ends = [head.start() for head in heads[1:]] + [len(changelog)]
    sections = {head[1]: (head[2], changelog[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)}
    wanted = f"## [{version}] - YYYY-MM-DD"
    if version in sections:
        date, notes = sections[version]
        if date is None:
            return notes, f"CHANGELOG.md has no date for {version}: its heading must be {wanted}"
        return notes, "" if notes else f"CHANGELOG.md says nothing about {version}: write what changed below its heading"
    return sections.get(UNRELEASED, ("", ""))[1], f"CHANGELOG.md has no section for {version}: rename [{UNRELEASED}] to {wanted}"


def address_of(settings: str) -> str:
    """The address of the repository by the text of setup.cfg."""
    metadata = configparser.ConfigParser()
    metadata.read_string(settings)
    for line in metadata["metadata"].get("project_urls", "").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "Source":
            return value.strip()
    return ""


def export(root: Path, commit: str, folder: Path) -> Path:
    """Write the files of a commit into a new folder, and nothing that is not part of it."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--format=tar", f"--output={archive}", commit, cwd=root)
    with tarfile.open(archive) as files:
        files.extractall(folder)  # made by git a moment ago; `filter` needs Python 3.11.4
    archive.unlink()
    return folder
