"""The compiled modules are made from the sources beside them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.compiled import COMPILED, plain, source
from txbroker.wire.records import WALK_IS_COMPILED

every_module = pytest.mark.parametrize("module", COMPILED, ids=lambda module: module.__name__)


@every_module
@pytest.mark.skipif(not WALK_IS_COMPILED, reason="txbroker was installed without a C compiler")
def test_the_compiled_module_is_not_older_than_its_source(module: ModuleType) -> None:
    compiled = Path(module.__file__ or "")
    assert compiled.suffix == ".so", f"{module.__name__} is not compiled: make venv compiles it"
    if compiled.parent == source(module).parent:
        for path in (source(module), source(module).with_suffix(".pxd")):
            assert compiled.stat().st_mtime >= path.stat().st_mtime, f"{path.name} was changed: make venv compiles it again"


@every_module
def test_the_plain_module_is_plain(module: ModuleType) -> None:
    assert plain(module).__file__ == str(source(module))
