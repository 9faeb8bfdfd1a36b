"""`python -m release [--trial] [--output FOLDER] [--python PYTHON ...] [--archs LIST]`: see CONTRIBUTING.md, "Release"."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import documents, image_context, wheels
from release.environments import VERSIONS, Tools, build_environment, empty_environment, python_version, pythons
from release.source import Source, export, read
from release.steps import Refused, fail, note, run, step

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Make a release; the status is 1, with a sentence, if there is none."""
    parser = argparse.ArgumentParser(prog="python -m release", description="build and check everything that a release consists of")
    parser.add_argument("--trial", action="store_true", help="build what is no release yet: the last commit, with the unreleased notes")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where the release is written: dist, or build/trial for a trial")
    parser.add_argument("--python", type=Path, action="append", help="build compiled wheels for these Pythons only, and without containers")
    parser.add_argument("--archs", default="", metavar="LIST", help="build in containers for these architectures, such as x86_64,aarch64")
    parser.add_argument("--tools", type=Path, default=ROOT / "build" / "release-tools", metavar="FOLDER", help="where the tools are")
    arguments = parser.parse_args(argv)
    output = (arguments.output or ROOT / ("build/trial" if arguments.trial else "dist")).resolve()
    try:
        others = documents.other_files(output) if output.exists() else []
        if others:
            raise Refused(f"{output} has files that are no release, such as {others[0]}: move them, or name another folder with --output")
        source = read(ROOT, trial=arguments.trial)
        chosen = {python_version(python): python for python in arguments.python} if arguments.python else pythons()
        if not chosen:
            raise Refused(f"no Python of {', '.join(VERSIONS)} with its headers is on PATH: name one with --python")
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="release-", dir=ROOT / "build") as place:
            made = make(source, Path(place), chosen, arguments)
            if output.exists():
                shutil.rmtree(output)
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, output)
    except Refused as problem:
        return fail(problem)
    print(f"== {source.says} is in {output}")
    for line in (output / documents.CHECKSUMS).read_text().splitlines():
        note(line.split("  ", 1)[1])
    return 0


def make(source: Source, place: Path, chosen: Mapping[str, Path], arguments: argparse.Namespace) -> Path:
    """Build everything, and check it; returns the folder that has it."""
    made = place / "made"
    index = made / "index"  # what an index receives
    index.mkdir(parents=True)
    name = f"txbroker-{source.version}"
    newest = list(chosen.values())[-1]
    with step(f"the tools, in {arguments.tools}"):
        arguments.tools.parent.mkdir(parents=True, exist_ok=True)
        tools = Tools(arguments.tools.resolve(), newest)
    times = {"SOURCE_DATE_EPOCH": str(source.seconds), "TXBROKER_COMMIT": source.commit}
    with step(f"the sdist of commit {source.commit[:12]}"):
        files = export(ROOT, source.commit, place / "source")
        tools.run("python", "-m", "build", "-q", "--sdist", "--no-isolation", "--outdir", index, files, cwd=place, **times)
        (sdist,) = index.glob("*.tar.gz")
        documents.check_sdist(sdist, run("git", "ls-tree", "-r", "--name-only", source.commit, cwd=ROOT).splitlines())
    with step("the pure wheel"):
        wheels.build_pure(tools, sdist, build_environment(tools, place / f"build-{python_version(newest)}", newest), index)
    build_compiled(tools, sdist, chosen, place, index, arguments)
    modules = wheels.compiled_modules((files / "setup.py").read_text(encoding="utf-8"))
    built = sorted(index.glob("*.whl"))
    with step(f"what {len(built)} wheels and the sdist have"):
        for wheel in built:
            wheels.check(wheel, modules)
        tools.run("twine", "check", "--strict", *built, sdist, cwd=index)
    check_installed(tools, source, built, chosen, place, files)
    with step("notes, constraints, the bill of materials"):
        documents.write_notes(source, made / documents.NOTES)
        documents.write_constraints(tools, place / "installed" / "bin" / "python", made / f"{name}-constraints.txt")
        documents.write_bill(tools, source, place / "installed" / "bin" / "python", made / f"{name}.cdx.json")
    with step("the context of the image"):
        context = made / f"{name}-image.tar.gz"
        image_context.write(files, context, source.commit, source.seconds)
    check_image(source, context, place)
    missing = wheels.not_built((files / "pyproject.toml").read_text(encoding="utf-8"), built)
    if missing:
        note(f"wheels that were not built here: {', '.join(missing)}")
        note("to build them, run this where a container engine runs, with ARCHS=x86_64,aarch64 where it can run both")
    documents.write_checksums(made)
    return made


def build_compiled(tools: Tools, sdist: Path, chosen: Mapping[str, Path], place: Path, index: Path, arguments: argparse.Namespace) -> None:
    """Build the compiled wheels: in containers where an engine runs, otherwise for the Pythons of this machine."""
    if arguments.archs or (not arguments.python and wheels.container_engine()):
        architectures = arguments.archs or wheels.own_architecture()
        with step(f"compiled wheels in containers, for {architectures}"):
            wheels.build_in_containers(tools, sdist, index, architectures)
        return
    for version in VERSIONS:
        if version not in chosen:
            note(f"Python {version} is not on this machine")
            continue
        with step(f"the compiled wheel for Python {version}, with {chosen[version]}"):
            environment = build_environment(tools, place / f"build-{version}", chosen[version])
            wheels.build_compiled(tools, sdist, environment, index, place / f"built-{version}")


def check_installed(tools: Tools, source: Source, built: Sequence[Path], chosen: Mapping[str, Path], place: Path, files: Path) -> None:
    """Install each wheel that this machine can run in an empty environment, and use it; the last environment is kept as `installed`."""
    installed = place / "installed"
    for wheel in built:
        pure = wheel.name.endswith(wheels.PURE)
        wanted = next((version for version in chosen if f"-cp{version.replace('.', '')}-" in wheel.name), None)
        fits = "manylinux" in wheel.name and wheel.name.endswith(f"_{platform.machine()}.whl") and platform.libc_ver()[0] == "glibc"
        if not pure and (wanted is None or not fits):
            continue  # cibuildwheel has tested it in its container
        python = chosen[wanted] if wanted is not None else list(chosen.values())[-1]
        with step(f"{wheel.name} in an empty environment"):
            shutil.rmtree(installed, ignore_errors=True)
            clean = empty_environment(installed, python)
            tools.pip(clean, "install", "-q", "--no-compile", wheel, cwd=place)
            tools.pip(clean, "check", cwd=place)
            kind = "--pure" if pure else "--compiled"
            run(clean, files / "release" / "serves.py", kind, "--says", source.says, cwd=place)


def check_image(source: Source, context: Path, place: Path) -> None:
    """Build the image where an engine runs, and ask it for its version."""
    if not wheels.container_engine():
        note("the image is not built here, because no container engine runs; its context has what its Dockerfile copies")
        return
    tag = f"txbroker:{source.version}"
    with step(f"the image {tag}"):
        unpacked = place / "context"
        unpacked.mkdir()
        run("tar", "-xzf", context, "-C", unpacked, cwd=place)
        details = [f"VERSION={source.version}", f"COMMIT={source.commit}", f"SOURCE={source.address}"]
        flags = [word for detail in details for word in ("--build-arg", detail)]
        run("docker", "build", "-q", "-f", unpacked / image_context.DOCKERFILE, *flags, "-t", tag, unpacked, cwd=place)
        says = run("docker", "run", "--rm", tag, "txbroker", "--version", cwd=place).strip()
        if says != source.says:
            raise Refused(f"txbroker --version in the image prints {says!r}; it should be {source.says!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
