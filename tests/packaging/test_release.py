"""`make release`: what it refuses, what a wheel must have, and a whole release of a copy of this checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from release import documents, image_context, source, wheels
from release.environments import VERSIONS
from release.steps import Refused
from tests.packaging.test_wheel import CLEAN_ENVIRONMENT, tracked
from tests.support import compiled
from tests.support.cache import CHECKOUT

CHANGELOG = """# Changelog

## [Unreleased]

Soon.

## [2.0] - 2026-01-02

### Added

- It.

## [1.1]

No date.

## [1.0] - 2025-01-02
"""
MODULES = wheels.compiled_modules((CHECKOUT / "setup.py").read_text())


@pytest.mark.parametrize(
    ("version", "notes", "flaw"),
    [
        ("2.0", "### Added\n\n- It.", ""),
        ("3.0", "Soon.", "CHANGELOG.md has no section for 3.0: rename [Unreleased] to ## [3.0] - YYYY-MM-DD"),
        ("1.1", "No date.", "CHANGELOG.md has no date for 1.1: its heading must be ## [1.1] - YYYY-MM-DD"),
        ("1.0", "", "CHANGELOG.md says nothing about 1.0: write what changed below its heading"),
    ],
)
def test_notes_come_from_the_changelog(version: str, notes: str, flaw: str) -> None:
    assert source.notes_of(CHANGELOG, version) == (notes, flaw)


def test_the_changelog_and_the_version_of_this_checkout_can_be_read() -> None:
    version = source.version_of((CHECKOUT / "txbroker" / "__init__.py").read_text())
    notes, _ = source.notes_of((CHECKOUT / "CHANGELOG.md").read_text(), version)
    assert notes.count("\n") > 10
    with pytest.raises(Refused, match="has no line __version__"):
        source.version_of("")


def test_the_address_has_one_place() -> None:
    assert source.address_of("[metadata]\nproject_urls =\n    Other = https://b\n    Source = https://a/b\n") == "https://a/b"
    assert source.address_of("[metadata]\nproject_urls =\n") == source.address_of("[metadata]\n") == ""
    address = source.address_of((CHECKOUT / "setup.cfg").read_text())
    if address:
        found = [name for name in tracked() if name != "setup.cfg" and address in (CHECKOUT / name).read_text(errors="replace")]
        assert found == [], "setup.cfg alone has it"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository that is fit for a release."""
    root = tmp_path / "repository"
    (root / "txbroker").mkdir(parents=True)
    (root / "txbroker" / "__init__.py").write_text('__version__ = "2.0"\n')
    (root / "setup.cfg").write_text("[metadata]\nproject_urls =\n    Source = https://example.org/x\n")
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")


def test_a_repository_that_is_fit_for_a_release(repository: Path, tmp_path: Path) -> None:
    found = source.read(repository, trial=False)
    head = git(repository, "rev-parse", "HEAD").strip()
    assert (found.version, found.commit, found.notes, found.address) == ("2.0", head, "### Added\n\n- It.", "https://example.org/x")
    assert found.says == f"txbroker 2.0 (commit {head[:12]})"
    git(repository, "tag", "-a", "v2.0", "-m", "two")
    assert source.read(repository, trial=False) == found, "its own tag"
    (repository / "junk").write_text("")
    exported = source.export(repository, head, tmp_path / "exported")
    assert sorted(path.name for path in exported.iterdir()) == ["CHANGELOG.md", "setup.cfg", "txbroker"], "only what is committed"


def test_what_is_no_release_is_refused_with_every_reason(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "tag", "v2.0")
    git(repository, "tag", "-a", "v3.0", "-m", "three")
    commit(repository)
    (repository / "txbroker" / "__init__.py").write_text('__version__ = "3.0"\n')
    (repository / "setup.cfg").write_text("[metadata]\n")
    with pytest.raises(Refused) as refused:
        source.read(repository, trial=False)
    for reason in (
        "2 changed or unknown files, setup.cfg for one: commit or remove them",
        "the tag v3.0 is another commit, ",
        "CHANGELOG.md has no section for 3.0",
        "setup.cfg has no address of the repository: write Source = https://... below project_urls",
        "make release TRIAL=1",
    ):
        assert reason in str(refused.value)
    assert source.read(repository, trial=True).notes == "Soon."
    assert capsys.readouterr().out.count("only a trial: ") == 4
    with pytest.raises(Refused, match="is not a git checkout"):
        source.read(tmp_path, trial=True)


def test_the_configured_wheels_are_those_of_the_classifiers() -> None:
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{version.replace('.', '')}-*" for version in VERSIONS]
    assert settings["environment"] == {"TXBROKER_COMPILE": "1"}, "a compiler that fails is an error"
    assert settings["linux"]["archs"] == ["x86_64", "aarch64"]
    listed = (CHECKOUT / "setup.cfg").read_text()
    assert re.findall(r"Programming Language :: Python :: (3\.\d+)", listed) == list(VERSIONS)


def test_what_was_not_built_is_listed() -> None:
    settings = (CHECKOUT / "pyproject.toml").read_text()
    assert len(wheels.not_built(settings, [])) == len(VERSIONS) * 2 * 2
    made = [Path(f"txbroker-1-cp{version.replace('.', '')}-cp3-manylinux_2_17_x86_64.whl") for version in VERSIONS]
    made += [Path("txbroker-1-py3-none-any.whl"), Path("txbroker-1-cp311-cp311-musllinux_1_2_aarch64.whl")]
    missing = wheels.not_built(settings, made)
    assert len(missing) == len(VERSIONS) * 3 - 1
    assert "cp312-manylinux_aarch64" in missing and "cp311-musllinux_aarch64" not in missing and "cp311-manylinux_x86_64" not in missing


def test_every_list_of_compiled_modules_is_the_same() -> None:
    paths = [compiled.source(module).relative_to(CHECKOUT).with_suffix("") for module in compiled.COMPILED]
    assert {".".join(path.parts) for path in paths} == set(MODULES)
    (line,) = re.findall(r"^COMPILED := \$\(foreach module,(.*?),txbroker", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert [f"txbroker.{name.replace('/', '.')}" for name in line.split()] == list(MODULES)
    read = re.search(r"^COMPILED = (\(.*?\))$", (CHECKOUT / "setup.py").read_text(), re.MULTILINE | re.DOTALL)  # as release/serves.py does
    assert read is not None and [path.replace("/", ".") for path in ast.literal_eval(read[1])] == list(MODULES)


def packed(place: Path, tag: str, files: Mapping[str, bytes]) -> Path:
    wheel = place / f"txbroker-1-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def library(place: Path, *flags: str) -> bytes:
    """A shared library, made by the compiler of this machine."""
    (place / "a.c").write_text("int a(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", "a.so", "a.c"], cwd=place, check=True, capture_output=True)
    return (place / "a.so").read_bytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="requires a C compiler")
def test_a_wheel_must_be_what_its_name_says(tmp_path: Path) -> None:
    good = "cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64"
    typed = {"txbroker/py.typed": b""}
    paths = [f"{module.replace('.', '/')}.cpython-312-x86_64-linux-gnu.so" for module in MODULES]
    stripped, debugging = library(tmp_path, "-Wl,--strip-all"), library(tmp_path, "-g")
    full = {**typed, **dict.fromkeys(paths, stripped)}
    wheels.check(packed(tmp_path, good, full), MODULES)
    wheels.check(packed(tmp_path, "cp314-cp314-musllinux_1_2_aarch64", full), MODULES)
    wheels.check(packed(tmp_path, "py3-none-any", typed), MODULES)
    for tag, files, reason in (
        (good, dict.fromkeys(paths, stripped), "no txbroker/py.typed"),
        (good, {**typed, **dict.fromkeys(paths[:1], stripped)}, f"named as compiled, and {', '.join(sorted(MODULES[1:]))} are not"),
        (good, {**full, paths[0]: debugging}, "is not stripped: it has .*symtab"),
        (good, {**full, paths[0]: b"text"}, "no ELF file"),
        (good, {**full, paths[0]: stripped[:200]}, "damaged table of sections"),
        ("cp312-cp312-linux_x86_64", full, "an index refuses the tag"),
        ("py3-none-any", full, "for every platform and has compiled modules"),
    ):
        with pytest.raises(Refused, match=reason):
            wheels.check(packed(tmp_path, tag, files), MODULES)


def test_an_image_context_without_what_the_dockerfile_copies_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in sorted({*image_context.allowed(CHECKOUT), f"{image_context.DOCKERFILE}.dockerignore"}):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, root / name)
    made = [tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"]
    for archive in made:
        image_context.write(root, archive, "c" * 40, 1_700_000_000)
    assert made[0].read_bytes() == made[1].read_bytes(), "the same for the same commit"
    with tarfile.open(made[0]) as files:
        names = files.getnames()
        assert files.extractfile("txbroker/_commit.txt").read() == b"c" * 40 + b"\n"  # type: ignore[union-attr]
        assert files.getmember("packaging/docker/run").mode == 0o755
    assert not [name for name in names if name.endswith((".pyc", ".so", "dropin.cache"))]
    (root / "LICENSE").unlink()
    ignored = root / f"{image_context.DOCKERFILE}.dockerignore"
    ignored.write_text(ignored.read_text().replace("!LICENSE\n", ""))
    with pytest.raises(Refused, match="has no LICENSE, which packaging/docker/Dockerfile copies"):
        image_context.write(root, made[0], "c" * 40, 0)


def test_an_sdist_that_is_not_the_repository_is_refused(tmp_path: Path) -> None:
    sdist = tmp_path / "x.tar.gz"
    (tmp_path / "x-1").mkdir()
    for name in ("PKG-INFO", "a", "b"):
        (tmp_path / "x-1" / name).write_text("")
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(tmp_path / "x-1", "x-1")
    documents.check_sdist(sdist, ["a", "b"])
    with pytest.raises(Refused, match=r"missing \['c'\], not in the repository \['b'\]"):
        documents.check_sdist(sdist, ["a", "c"])


def release(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "release", "--python", sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=False)


def test_files_that_a_release_does_not_have_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "a.whl").write_text("x")
    assert documents.other_files(tmp_path) == ["index/a.whl"]
    documents.write_checksums(tmp_path)
    assert documents.other_files(tmp_path) == []
    (tmp_path / "mine.txt").write_text("x")
    assert documents.other_files(tmp_path) == ["mine.txt"]


@pytest.mark.process
@pytest.mark.timeout(850)  # two minutes of CPU time, also on a machine that other tests use
def test_a_release_is_whole_and_works(tmp_path: Path) -> None:
    """All of it, for this Python: built, and the wheels installed in empty environments, where they serve clients."""
    root, output = tmp_path / "root", tmp_path / "output"
    for name in tracked():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, root / name)
    version = source.version_of((root / "txbroker" / "__init__.py").read_text())
    changelog, settings = root / "CHANGELOG.md", root / "setup.cfg"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]", f"## [{version}] - 2026-01-02"))
    if not source.address_of(settings.read_text()):
        settings.write_text(settings.read_text().replace("project_urls =\n", "project_urls =\n    Source = https://example.org/x\n"))
    git(root, "init", "-q")
    commit(root)
    head = git(root, "rev-parse", "HEAD").strip()
    output.mkdir()
    (output / "mine").write_text("")
    refused = release(root, "--output", output)
    assert (refused.returncode, refused.stderr.count("has files that are no release")) == (1, 1), refused.stdout + refused.stderr
    (output / "mine").unlink()

    ended = release(root, "--output", output, "--tools", tmp_path / "tools")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps = ("the tools", "the sdist of commit", "the pure wheel", "the compiled wheel", f"txbroker {version} (commit {head[:12]}) is in")
    assert [step for step in steps if f"== {step}" not in ended.stdout] == []
    assert not list((root / "build").glob("release-*")), "nothing is left behind"
    assert git(root, "status", "--porcelain") == ""

    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    names = sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())
    (tagged,) = [name for name in names if f"-{own}-{own}-" in name]
    assert re.fullmatch(rf"index/txbroker-{version}-{own}-{own}-(manylinux[0-9_]+_{os.uname().machine}\.?)+\.whl", tagged)
    expected = {
        f"index/txbroker-{version}.tar.gz", f"index/txbroker-{version}-py3-none-any.whl", tagged, f"txbroker-{version}-image.tar.gz",
        f"txbroker-{version}-constraints.txt", f"txbroker-{version}.cdx.json", "RELEASE_NOTES.md", "SHA256SUMS",
    }  # fmt: skip
    assert set(names) == expected
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=output, check=True, capture_output=True)
    assert len((output / "SHA256SUMS").read_text().splitlines()) == len(expected) - 1
    notes = (output / "RELEASE_NOTES.md").read_text()
    assert notes.startswith(f"# txbroker {version}\n\nCommit {head}. Source: https://") and "### Added" in notes
    bill = json.loads((output / f"txbroker-{version}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", version)
    parts = {f"{part['name'].lower()}=={part['version']}" for part in bill["components"]}
    constraints = (output / f"txbroker-{version}-constraints.txt").read_text().lower().splitlines()[1:]
    assert any(line.startswith("twisted==") for line in constraints) and set(constraints) <= parts
