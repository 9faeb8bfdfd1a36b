"""Compiles inner loops of the hot path, if Cython and a C compiler are installed, and writes the commit. The rest is in setup.cfg.

Without them, or with TXBROKER_COMPILE=0 in the environment, the installation is pure Python: the same behaviour, but slower.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMPILED = ("txbroker/wire/record_loops", "txbroker/wire/codec_blocks", "txbroker/log/produced_batch")


def extensions() -> list[Extension]:
    """The modules to compile; empty if compilation is disabled or impossible."""
    if os.environ.get("TXBROKER_COMPILE", "1") == "0":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [Extension(path.replace("/", "."), [f"{path}.py"], extra_compile_args=["-O2", "-g0"]) for path in COMPILED]
    directives = {"language_level": 3, "annotation_typing": False, "boundscheck": True, "wraparound": False}
    made: list[Extension] = cythonize(modules, build_dir="build/cython", compiler_directives=directives)
    for extension in made:
        # Without a working compiler there is a warning, and the installation succeeds. Cython drops this if it is set before.
        extension.optional = True
    return made


def write_commit(package: Path) -> None:
    """Write the commit into a built package, if it is known. TXBROKER_COMMIT: for builds outside of git, such as the image's."""
    source = runpy.run_path(str(Path(__file__).parent / "txbroker" / "build_info.py"))
    commit = os.environ.get("TXBROKER_COMMIT") or source["commit"]()
    if commit != source["UNKNOWN"]:
        (package / source["COMMIT_FILE"]).write_text(f"{commit}\n")


class BuildPackage(build_py):
    """Adds the commit to the wheel. An editable installation finds it in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib) / "txbroker")


class SourceDistribution(sdist):
    """Adds the commit to the sdist."""

    def make_release_tree(self, base_dir: Any, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / "txbroker")


setup(ext_modules=extensions(), cmdclass={"build_py": BuildPackage, "sdist": SourceDistribution})
