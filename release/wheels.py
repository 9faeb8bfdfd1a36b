"""Wheels: compiled for the Pythons of this machine or in containers for all of them, and the pure one; and what each must have."""

from __future__ import annotations

import ast
import platform
import re
import shutil
import struct
import subprocess
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from release.environments import Tools
from release.steps import Refused

PURE = "py3-none-any.whl"
_COMPILED = re.compile(r"-cp3\d+-cp3\d+-((manylinux|musllinux)_\d+_\d+_\w+|manylinux2014_\w+)(\.manylinux\w+)*\.whl$")
_DEBUGGING = (".symtab", ".debug_info", ".debug_line")


def compiled_modules(setup: str) -> tuple[str, ...]:
    """The names of the compiled modules by the text of setup.py, such as `txbroker.wire.record_loops`."""
    for statement in ast.parse(setup).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "COMPILED":
            paths: tuple[str, ...] = ast.literal_eval(statement.value)
            return tuple(path.replace("/", ".") for path in paths)
    raise Refused("setup.py names no COMPILED modules")


def container_engine() -> bool:
    """Whether a container engine runs here."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "version"], capture_output=True, check=False).returncode == 0


def build_pure(tools: Tools, sdist: Path, environment: Path, target: Path) -> None:
    """Build the wheel for every platform, with the Python of an environment for builds."""
    _build(tools, sdist, environment, target, "0")


def build_compiled(tools: Tools, sdist: Path, environment: Path, target: Path, place: Path) -> None:
    """Build the wheel of one Python, and give it the tag of the oldest system that can load it."""
    place.mkdir()
    _build(tools, sdist, environment, place, "1")
    (built,) = place.glob("*.whl")
    tools.run("auditwheel", "repair", "--strip", "-w", target, built, cwd=place)


def _build(tools: Tools, sdist: Path, environment: Path, target: Path, wish: str) -> None:
    tools.pip(environment, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", target, sdist, cwd=target, TXBROKER_COMPILE=wish)


def build_in_containers(tools: Tools, sdist: Path, target: Path, architectures: str) -> None:
    """Build the wheels of every Python for glibc and musl, as pyproject.toml configures it."""
    tools.run("python", "-m", "pip", "install", "-q", "cibuildwheel>=3.2", cwd=target)
    tools.run("cibuildwheel", "--platform", "linux", "--archs", architectures, "--output-dir", target, sdist, cwd=target)


def own_architecture() -> str:
    """The name of this machine's architecture in tags."""
    return platform.machine()


def not_built(settings: str, wheels: Iterable[Path]) -> list[str]:
    """Which of the wheels that the text of pyproject.toml configures are not there, as cibuildwheel names them."""
    configured = tomllib.loads(settings)["tool"]["cibuildwheel"]
    names = [wheel.name for wheel in wheels]
    return [
        f"{python}-{family}_{architecture}"
        for family in ("manylinux", "musllinux")
        for architecture in configured["linux"]["archs"]
        for python in (pattern.removesuffix("-*") for pattern in configured["build"])
        if not any(f"-{python}-" in name and family in name and name.endswith(f"_{architecture}.whl") for name in names)
    ]


def check(wheel: Path, modules: Iterable[str]) -> None:
    """Refused unless a wheel is what its name says: compiled modules without symbols for debugging, or none and every platform."""
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    libraries = {name: archive.read(name) for name in names if name.endswith(".so")}
    if "txbroker/py.typed" not in names:
        raise Refused(f"{wheel.name} has no txbroker/py.typed")
    if wheel.name.endswith(PURE):
        if libraries:
            raise Refused(f"{wheel.name} is for every platform and has compiled modules: {', '.join(libraries)}")
        return
    if _COMPILED.search(wheel.name) is None:
        raise Refused(f"an index refuses the tag of {wheel.name}: auditwheel must give it one of manylinux or musllinux")
    found = {name.partition(".")[0].replace("/", ".") for name in libraries}
    missing = sorted(set(modules) - found)
    if missing:
        raise Refused(f"{wheel.name} is named as compiled, and {', '.join(missing)} are not")
    for name, content in libraries.items():
        left = [section for section in section_names(content) if section.startswith(_DEBUGGING)]
        if left:
            raise Refused(f"{name} of {wheel.name} is not stripped: it has {', '.join(left)}")


def section_names(library: bytes) -> list[str]:
    """The names of the sections of a shared library (ELF, 64 bits, little endian: elf(5))."""
    if library[:6] != b"\x7fELF\x02\x01" or len(library) < 64:
        raise Refused("a compiled module is no ELF file of 64 bits, little endian")
    (start,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", library, 0x3A)
    if size < 0x28 or start + size * count > len(library) or names_at >= count:
        raise Refused("a compiled module has a damaged table of sections")
    offsets = [struct.unpack_from("<I", library, start + size * index)[0] for index in range(count)]
    (names,) = struct.unpack_from("<Q", library, start + size * names_at + 0x18)
    return [library[names + offset : library.find(b"\0", names + offset)].decode("ascii", "replace") for offset in offsets]
