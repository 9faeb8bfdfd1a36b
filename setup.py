"""Compiles one module of the hot path, if Cython and a C compiler are installed. Everything else is in setup.cfg.

Without them, or with TXBROKER_COMPILE=0 in the environment, the installation is pure Python: the same behaviour, but slower.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

COMPILED = {"txbroker.wire.record_loops": "txbroker/wire/record_loops.py"}


def extensions() -> list[Extension]:
    """The modules to compile; empty if compilation is disabled or impossible."""
    if os.environ.get("TXBROKER_COMPILE", "1") == "0":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [Extension(name, [path], extra_compile_args=["-O2", "-g0"]) for name, path in COMPILED.items()]
    directives = {"language_level": 3, "annotation_typing": False, "boundscheck": True, "wraparound": False}
    made: list[Extension] = cythonize(modules, build_dir="build/cython", compiler_directives=directives)
    for extension in made:
        # Without a working compiler there is a warning, and the installation succeeds. Cython drops this if it is set before.
        extension.optional = True
    return made


setup(ext_modules=extensions())
