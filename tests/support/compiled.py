"""The modules that Cython compiles where it can, and their plain form."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.support.cache import CHECKOUT
from txbroker.log import produced_batch
from txbroker.wire import codec_blocks, record_loops
from txbroker.wire.records import WALK_IS_COMPILED

COMPILED = (record_loops, codec_blocks, produced_batch)


def source(module: ModuleType) -> Path:
    """What the module is compiled from, or is."""
    return CHECKOUT / f"{module.__name__.replace('.', '/')}.py"


def plain(module: ModuleType) -> ModuleType:
    """The module as plain Python, which itself uses the other modules as they are installed."""
    spec = importlib.util.spec_from_file_location(f"plain_{source(module).stem}", source(module))
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def forms(module: ModuleType) -> list[ModuleType]:
    """The module that txbroker uses, and the plain one if that is compiled."""
    return [module, plain(module)] if WALK_IS_COMPILED else [module]
