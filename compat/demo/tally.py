"""Counts, keys and checksums of a topic, computed in the same way from sent and from received records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b

_DIGEST_SIZE = 16
_MODULUS = 1 << 64
_NULL = b"\xff" * 8


class Tally:
    """One reading of a topic. Records of a partition are added in the order in which they were read."""

    def __init__(self) -> None:
        self.count = 0
        self.keys: set[bytes] = set()
        self._sum = 0
        self._seen: dict[int, list[tuple[int, bytes]]] = defaultdict(list)  # partition -> (offset, digest of key and value)

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Add a record."""
        digest = _digest(key, value)
        self.count += 1
        if key is not None:
            self.keys.add(key)
        self._sum = (self._sum + int.from_bytes(digest[:8], "big")) % _MODULUS
        self._seen[partition].append((offset, digest))

    @property
    def checksum(self) -> str:
        """The checksum of all keys and values, independent of their order: the sum of their hashes, 16 hex digits."""
        return f"{self._sum:016x}"

    @property
    def ends(self) -> Mapping[int, int]:
        """The offset after the last record of each partition."""
        return {partition: seen[-1][0] + 1 for partition, seen in self._seen.items()}

    def difference(self, other: Tally) -> str | None:
        """The first difference between `other` and this one; None if they are equal, including the order in every partition."""
        for partition in sorted(self._seen.keys() | other._seen.keys()):
            expected, found = self._seen.get(partition, []), other._seen.get(partition, [])
            if expected == found:
                continue
            for want, got in zip(expected, found, strict=False):
                if want[0] != got[0]:
                    return f"partition {partition}: offset {got[0]} where {want[0]} was due"
                if want[1] != got[1]:
                    return f"partition {partition}, offset {want[0]}: other bytes"
            return f"partition {partition}: {len(found)} records instead of {len(expected)}"
        if self.checksum != other.checksum or self.keys != other.keys:
            return "the keys or the checksum differ"
        return None


def _digest(key: bytes | None, value: bytes | None) -> bytes:
    hashed = blake2b(digest_size=_DIGEST_SIZE)
    for part in (key, value):
        hashed.update(_NULL if part is None else len(part).to_bytes(8, "big"))
        hashed.update(part or b"")
    return hashed.digest()
