"""`python -m tests.support.changed [REVISION]`: the test files of the packages that a change touches, by the imports of the code.

The change is what differs from the common ancestor with REVISION (main if it is not given): commits, and files that are not committed.
A test file is chosen if it changed, or if it, a module of the tests that it imports, or the conftest.py of its folder, imports from a
package of txbroker with a changed module. A changed page chooses the tests of the documentation. tests/test_tidy.py is always chosen.
What tests start as a process they do not import: such a change needs `make test`, too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.cache import CHECKOUT

FOLDERS = ("txbroker", "simulation", "tests", "bench", "compat", "release")
PRODUCT = "txbroker"
ALWAYS = "tests/test_tidy.py"
# What has no imports: the end of its path, and the folder of the tests that read it.
READ_BY = {".md": "tests/docs", "Makefile": "tests/docs", "setup.cfg": "tests/packaging", "pyproject.toml": "tests/packaging",
           "setup.py": "tests/packaging", ".service": "tests/packaging", "Dockerfile": "tests/packaging",
           "MANIFEST.in": "tests/packaging"}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Print the chosen files, one a line."""
    revision = arguments[0] if arguments else "main"
    try:
        files = changed_files(CHECKOUT, revision)
    except subprocess.CalledProcessError as failed:
        print(f"git cannot compare with {revision}: {failed.stderr.strip()}; name another one with REV=", file=sys.stderr)
        return 2
    print(*files_for(CHECKOUT, files), sep="\n")
    return 0


def changed_files(root: Path, revision: str) -> list[str]:
    """The paths below `root` that differ from the common ancestor with `revision`; those that were deleted, too."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout

    ancestor = git("merge-base", revision, "HEAD").strip()
    differ = git("diff", "--name-only", "--no-renames", "-z", ancestor)
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in (differ + new).split("\0") if path})


def files_for(root: Path, changed: Iterable[str]) -> list[str]:
    """The test files for changed paths, sorted; those that exist."""
    changed = set(changed)
    modules = {_module(path.relative_to(root)): path for folder in FOLDERS for path in (root / folder).rglob("*.py")}
    imported = {module: set(_imports(path, modules)) for module, path in modules.items() if _root(module) != PRODUCT}
    # Deleted modules, too: what imports them must be run.
    touched = {_package(_module(Path(path))) for path in changed if path.endswith(".py")}
    read = tuple(folder for end, folder in READ_BY.items() if any(path.endswith(end) for path in changed))
    chosen = {ALWAYS} if (root / ALWAYS).exists() else set()
    for module, path in modules.items():
        if module.startswith("tests.") and path.name.startswith("test_"):
            place = path.relative_to(root).as_posix()
            needs = _reached([module, *_conftests(module)], imported)
            if place.startswith(read) or touched & needs:
                chosen.add(place)
    return sorted(chosen)


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _root(module: str) -> str:
    return module.partition(".")[0]


def _package(module: str) -> str:
    """A module of txbroker counts as its package, below txbroker; any other one for itself."""
    return ".".join(module.split(".")[:2]) if _root(module) == PRODUCT else module


def _conftests(module: str) -> Iterator[str]:
    """The names of the conftest.py of the folders of a test, but for the one of all tests, which would choose everything."""
    parts = module.split(".")[:-1]
    while len(parts) > 1:
        yield ".".join([*parts, "conftest"])
        parts.pop()


def _imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the project that a file imports, anywhere in it; those of txbroker as their packages."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            within = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in within]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in modules:
            names = [node.value]  # for importlib, or `python -m`
        yield from (_package(name) for name in names if _root(name) in FOLDERS)


def _reached(starts: Iterable[str], imported: Mapping[str, set[str]]) -> set[str]:
    """The starts, and all that they import, one through the other."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += imported.get(module, ())
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
