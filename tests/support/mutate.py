"""`python -m tests.support.mutate MODULES [TESTS]`: change modules in small ways, one at a time, and see whether unit tests fail (mutmut).

MODULES and TESTS are comma-separated: paths or patterns of modules, and folders of tests. Without TESTS they are the folders below
tests/ that have the names of the modules' packages. Works on a copy in build/mutation, so that the checkout stays as it is; a second
run of the same modules continues the first one. Writes the changes of the mutants that survived to build/mutation/survivors.txt.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.cache import CHECKOUT

COPY = CHECKOUT / "build" / "mutation"
FOLDERS = ("txbroker", "simulation", "tests", "bench", "compat", "twisted")
FILES = ("setup.cfg", "pyproject.toml", "setup.py", "Makefile")
# A test fails, or does not end.
DETECTED = ("killed", "timeout", "suspicious", "segfault", "caught by type check")


def main(arguments: list[str]) -> int:
    """Run, and print the score. The status is 0 also when mutants survive."""
    if not arguments or not arguments[0]:
        print("name the modules: make mutate MODULES=txbroker/log/segments.py", file=sys.stderr)
        return 2
    modules = arguments[0].split(",")
    missing = [module for module in modules if not list(CHECKOUT.glob(module))]
    if missing:
        print(f"no module is named {', '.join(missing)}; name paths such as txbroker/log/segments.py", file=sys.stderr)
        return 2
    folders = arguments[1].split(",") if len(arguments) > 1 and arguments[1] else default_tests(modules)
    prepare(modules, folders)
    ran = subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "2"], cwd=COPY, check=False)
    if ran.returncode != 0:
        return ran.returncode
    report(results())
    return 0


def default_tests(modules: list[str]) -> list[str]:
    """The folders of tests that have the names of the modules' packages."""
    packages = {Path(module).parts[1] for module in modules if len(Path(module).parts) > 1}
    return sorted(f"tests/{package}" for package in packages if (CHECKOUT / "tests" / package).is_dir())


def prepare(modules: list[str], folders: list[str]) -> None:
    """Copy the project to COPY, and write which modules are changed and which tests run into its setup.cfg."""
    COPY.mkdir(parents=True, exist_ok=True)
    chosen = (CHECKOUT / "setup.cfg").read_text() + settings(modules, folders)
    before = COPY / "setup.cfg"
    if not before.exists() or before.read_text() != chosen:
        # mutmut would take the files that it did not change for those modules as they are.
        shutil.rmtree(COPY / "mutants", ignore_errors=True)
    for folder in FOLDERS:
        shutil.rmtree(COPY / folder, ignore_errors=True)
        shutil.copytree(CHECKOUT / folder, COPY / folder, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for name in FILES:
        shutil.copy2(CHECKOUT / name, COPY / name)
    (COPY / "setup.cfg").write_text(chosen)


def settings(modules: list[str], folders: list[str]) -> str:
    """The section of setup.cfg for mutmut."""
    lists = {
        "source_paths": ["txbroker"],
        "only_mutate": modules,
        "also_copy": [folder for folder in FOLDERS if folder not in ("txbroker", "tests")],
        "pytest_add_cli_args_test_selection": folders,
        "pytest_add_cli_args": ["-m", "not process and not extended", "-p", "no:cacheprovider"],
    }
    text = "\n[mutmut]\n" + "".join(f"{key} =" + "".join(f"\n    {value}" for value in values) + "\n" for key, values in lists.items())
    configparser.ConfigParser().read_string(text)
    return text


def results() -> dict[str, str]:
    """The status of each mutant of the last run, by its name."""
    printed = subprocess.run([sys.executable, "-m", "mutmut", "results", "--all", "true"], cwd=COPY, check=True, capture_output=True,
                             text=True)
    lines = (line.strip().rpartition(": ") for line in printed.stdout.splitlines() if ": " in line)
    return {name: status for name, _, status in lines}


def report(statuses: dict[str, str]) -> None:
    """Print the score, and write the changes of the mutants that survived."""
    counts = Counter(statuses.values())
    detected = sum(counts[status] for status in DETECTED)
    judged = sum(counts.values()) - counts["not checked"]
    texts = []
    for name, status in statuses.items():
        if status in ("survived", "no tests"):
            shown = subprocess.run([sys.executable, "-m", "mutmut", "show", name], cwd=COPY, check=False, capture_output=True, text=True)
            texts.append(shown.stdout)
    (COPY / "survivors.txt").write_text("\n".join(texts))
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    print(f"{detected} of {judged} mutants were detected ({detected / max(judged, 1):.0%}); the others are in {COPY / 'survivors.txt'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
