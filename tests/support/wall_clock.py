"""A wall clock for another process that a test can step, by Debian's libfaketime; the process's monotonic clock stays real."""

from __future__ import annotations

from pathlib import Path


class WallClock:
    """`environment` gives a process this clock. `step(offset_s)` sets it to the real time plus `offset_s`, at once."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "wall-clock"
        self.step(0)
        self.environment = {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def step(self, offset_s: int) -> None:
        """Step the clock; the process sees it the next time it asks for the date."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.replace(self._file)


def _library() -> Path:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert found, "libfaketime is not installed: run `make prepare`, or install Debian's package libfaketime"
    return found[0]
