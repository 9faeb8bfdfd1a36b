"""Compiles inner loops of the hot path, writes the commit, and rewrites the README's links for an index. The rest is in setup.cfg.

The variable TXBROKER_COMPILE decides what is compiled: 1 compiles or fails, 0 compiles nothing, and without it Cython and a C compiler
are used where they work. What is not compiled behaves the same and is slower. A wheel has a platform in its name only if it is compiled.
"""

from __future__ import annotations

import configparser
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
COMPILED = ("txbroker/wire/record_loops", "txbroker/wire/codec_blocks", "txbroker/log/produced_batch", "txbroker/log/batch_positions",
            "txbroker/log/index_file", "txbroker/log/offset_index", "txbroker/log/time_index")
WISH = "TXBROKER_COMPILE"
# A link of Markdown to a file of the repository, with its text.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def extensions() -> list[Extension]:
    """The modules to compile; empty if none are to be compiled, or none can be and it is not required."""
    wish = os.environ.get(WISH, "")
    if wish not in ("", "0", "1"):
        sys.exit(f"{WISH}={wish}: set 1 to compile or fail, 0 to compile nothing, or do not set it")
    if wish == "0":
        return []
    problem = compiler_problem()
    if problem and wish == "1":
        sys.exit(f"{WISH}=1 requires compiled modules, but {problem}. Install what is missing, or set {WISH}=0 for a build in pure Python.")
    if problem:
        print(f"nothing is compiled: {problem}", file=sys.stderr)
        return []
    from Cython.Build import cythonize

    flags = [] if sys.platform == "win32" else ["-O2", "-g0"]
    strip = ["-Wl,--strip-all"] if sys.platform == "linux" else []
    modules = [Extension(path.replace("/", "."), [f"{path}.py"], extra_compile_args=flags, extra_link_args=strip) for path in COMPILED]
    directives = {"language_level": 3, "annotation_typing": False, "boundscheck": True, "wraparound": False}
    made: list[Extension] = cythonize(modules, build_dir="build/cython", compiler_directives=directives)
    return made


def compiler_problem() -> str:
    """What prevents compiling, found by compiling a module; empty if it works."""
    try:
        import Cython.Build  # noqa: F401
    except ImportError:
        return "Cython is not installed"
    from distutils.ccompiler import new_compiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler, get_python_inc

    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "probe.c")
        source.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return 0; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            includes = sorted({get_python_inc(), get_python_inc(plat_specific=True)})
            objects = compiler.compile([str(source)], output_dir=place, include_dirs=includes)
            if sys.platform != "win32":  # there a module needs Python's import library, which build_ext finds
                compiler.link_shared_object(objects, str(Path(place, "probe.so")))
        except (CCompilerError, DistutilsError, OSError) as error:
            return f"no C compiler with the headers of Python works ({error}; Debian: apt-get install gcc python3-dev)"
    return ""


def long_description() -> str:
    """The README with links that work on an index: to the files of this version, or only their texts while there is no address."""
    metadata = configparser.ConfigParser()
    metadata.read(HERE / "setup.cfg", encoding="utf-8")
    lines = metadata["metadata"].get("project_urls", "").splitlines()
    addresses = dict(tuple(map(str.strip, line.split("=", 1))) for line in lines if "=" in line)
    found = re.search(r'^__version__ = "(.+)"$', (HERE / "txbroker" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    base = f"{addresses['Source']}/blob/v{found[1]}/" if "Source" in addresses else ""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return LINK.sub(rf"[\1]({base}\2)" if base else r"\1", text)


def write_commit(package: Path) -> None:
    """Write the commit into a built package, if it is known. TXBROKER_COMMIT: for builds outside of git, such as the image's."""
    source = runpy.run_path(str(HERE / "txbroker" / "build_info.py"))
    commit = os.environ.get("TXBROKER_COMMIT") or source["commit"]()
    if commit != source["UNKNOWN"]:
        (package / source["COMMIT_FILE"]).write_text(f"{commit}\n")


class BuildPackage(build_py):
    """Adds the commit to the wheel. An editable installation finds it in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib) / "txbroker")


class PackageNames(egg_info):
    """Writes top_level.txt without `twisted`: the folder with the plugin is Twisted's package, not one of txbroker."""

    def run(self) -> None:
        super().run()
        Path(self.egg_info, "top_level.txt").write_text("txbroker\n")


class SourceDistribution(sdist):
    """Adds the commit to the sdist."""

    def make_release_tree(self, base_dir: Any, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / "txbroker")


setup(
    ext_modules=extensions(),
    long_description=long_description(),
    cmdclass={"build_py": BuildPackage, "egg_info": PackageNames, "sdist": SourceDistribution},
)
