"""Damage as by a power cut or a failing disk to the files of a killed broker. Only the damaged records may be lost."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_START = struct.Struct(">qi")
_OVERHEAD = 12
_COVERED = 17  # bytes from the CRC on: a change there is detected
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")


class Damage(NamedTuple):
    """A description of the damage. `lost_from`: the first destroyed offset of `partition` (a directory's name), None when there is none.

    `cut`: whether the broker must log that it truncates the log.
    """

    what: str
    partition: str
    lost_from: int | None
    cut: bool


class Batch(NamedTuple):
    """One batch in a log file."""

    position: int
    size: int
    base_offset: int


def batches(log: Path) -> list[Batch]:
    """The batches of a log file that no process writes, by their lengths."""
    data = log.read_bytes()
    found = []
    position = 0
    while position + _OVERHEAD <= len(data):
        base_offset, length = _START.unpack_from(data, position)
        size = length + _OVERHEAD
        if position + size > len(data):
            break
        found.append(Batch(position, size, base_offset))
        position += size
    return found


def active_log(directory: Path) -> Path:
    """The log file of the active segment."""
    return max(directory.glob("*.log"))


def damage(data: Path, partition: str, chance: random.Random) -> Damage:
    """Damage a file of a partition, or of the log directory `data`."""
    directory = data / partition
    kinds: list[Callable[[Path, random.Random], Damage]] = [cut, flip, zeros, garbage, index, snapshot, epochs, checkpoint]
    (kind,) = chance.choices(kinds, (2, 2, 1, 1, 2, 1, 1, 1))
    return kind(directory, chance)


def cut(directory: Path, chance: random.Random) -> Damage:
    """Remove the end of the active segment."""
    log = active_log(directory)
    hit = _recent(log, chance)
    if hit is None:
        return zeros(directory, chance)
    position = hit.position + chance.randrange(hit.size)
    _truncate(log, position)
    return Damage(f"{log} was truncated to {position} bytes", directory.name, hit.base_offset, position > hit.position)


def flip(directory: Path, chance: random.Random) -> Damage:
    """Change one byte near the end."""
    log = active_log(directory)
    hit = _recent(log, chance)
    if hit is None:
        return garbage(directory, chance)
    position = hit.position + chance.randrange(_COVERED, hit.size)
    _flip(log, position, chance)
    return Damage(f"a byte of {log} was changed at position {position}", directory.name, hit.base_offset, True)


def zeros(directory: Path, chance: random.Random) -> Damage:
    """Extend the file with zeros, as when its new length was written and its data was not."""
    return _append(directory, bytes(chance.randrange(1, 5000)), "zeros")


def garbage(directory: Path, chance: random.Random) -> Damage:
    """Append random bytes."""
    return _append(directory, chance.randbytes(chance.randrange(1, 5000)), "random data")


def _append(directory: Path, data: bytes, what: str) -> Damage:
    log = active_log(directory)
    with log.open("ab") as file:
        file.write(data)
    return Damage(f"{len(data)} bytes of {what} were appended to {log}", directory.name, None, True)


def index(directory: Path, chance: random.Random) -> Damage:
    """Damage an index."""
    log = active_log(directory)
    return _damage_file(log.with_suffix(chance.choice((".index", ".timeindex"))), chance)


def snapshot(directory: Path, chance: random.Random) -> Damage:
    """Damage a producer snapshot."""
    found = sorted(directory.glob("*.snapshot"))
    return _damage_file(chance.choice(found), chance) if found else index(directory, chance)


def epochs(directory: Path, chance: random.Random) -> Damage:
    """Damage the leader epoch checkpoint."""
    return _damage_file(directory / "leader-epoch-checkpoint", chance)


def checkpoint(directory: Path, chance: random.Random) -> Damage:
    """Damage a checkpoint of the log directory."""
    return _damage_file(directory.parent / chance.choice(CHECKPOINTS), chance)


def _damage_file(path: Path, chance: random.Random) -> Damage:
    how = chance.choice(("removed", "emptied", "truncated", "changed", "replaced by random bytes"))
    if not path.exists() or how == "removed":
        path.unlink(missing_ok=True)
    elif how == "replaced by random bytes":
        path.write_bytes(chance.randbytes(chance.randrange(200)))
    elif how == "emptied" or not path.stat().st_size:
        path.write_bytes(b"")
    elif how == "truncated":
        _truncate(path, chance.randrange(path.stat().st_size))
    else:
        _flip(path, chance.randrange(path.stat().st_size), chance)
    return Damage(f"{path} was {how}", path.parent.name, None, False)


def _recent(log: Path, chance: random.Random) -> Batch | None:
    """One of the last batches of a log file."""
    found = batches(log)
    return chance.choice(found[-max(1, len(found) // 3) :]) if found else None


def _truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def _flip(path: Path, position: int, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (before,) = file.read(1)
        file.seek(position)
        file.write(bytes([before ^ 1 << chance.randrange(8)]))
