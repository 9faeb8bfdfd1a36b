"""The modules that Cython compiles where it can, and their plain form."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from tests.support.cache import CHECKOUT
from txbroker.log import batch_positions, index_file, offset_index, produced_batch, time_index
from txbroker.wire import codec_blocks, record_loops
from txbroker.wire.records import WALK_IS_COMPILED

COMPILED = (record_loops, codec_blocks, produced_batch, batch_positions, index_file, offset_index, time_index)


def source(module: ModuleType) -> Path:
    """What the module is compiled from, or is."""
    return CHECKOUT / f"{module.__name__.replace('.', '/')}.py"


def plain(module: ModuleType, uses: Mapping[ModuleType, ModuleType] | None = None) -> ModuleType:
    """The module as plain Python. It imports the second module of `uses` for the first, and others as they are installed."""
    spec = importlib.util.spec_from_file_location(f"plain_{source(module).stem}", source(module))
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {imported.__name__: used for imported, used in (uses or {}).items()}):
        spec.loader.exec_module(made)
    return made


def forms(module: ModuleType, base: ModuleType | None = None) -> list[ModuleType]:
    """The module that txbroker uses, and the plain one if that is compiled, with a plain `base`."""
    return [module, plain(module, {} if base is None else {base: plain(base)})] if WALK_IS_COMPILED else [module]
