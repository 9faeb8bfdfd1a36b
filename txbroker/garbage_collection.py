"""How CPython's garbage collector runs in a broker.

A full pass visits all containers that live, and nothing else runs meanwhile: 0.1 to 0.2 s with 5,000 partitions. Each start, election or
creation of so many partitions would take several. Objects that are not in reference cycles are freed without the collector; what it has to
find are cycles, and those of partitions end with the partitions. So there are no passes during the start, what lives after it and what
partitions add later is left out of them (`gc.freeze`), and they are made less often. What is garbage by then must be found before it is
left out, or it stays for ever. After a start it is some hundred of 50,000 objects, so that the pass over all would cost more than it frees.
"""

from __future__ import annotations

import gc

# The youngest objects are collected when so many more have been made than freed, all objects 100 times less often, or rarer.
# CPython's default is 700.
YOUNG_MAX = 10_000

# The objects of partitions are frozen when there are so many more, and this share more, and all are looked at when half of them are gone.
REPLICAS_MIN = 100
SHARE = 1 / 8


class GarbageCollection:
    """Of one process."""

    def __init__(self) -> None:
        self._frozen = 0  # replicas at the last freeze
        self._is_repeated = False

    def begin(self) -> None:
        """The start begins."""
        gc.disable()

    def begin_again(self) -> None:
        """Another start in this process follows: what the broker before it leaves is garbage."""
        self._is_repeated = True
        gc.unfreeze()

    def started(self) -> None:
        """Clients are served."""
        if not self._is_repeated:
            gc.freeze()
        gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
        gc.enable()

    def replicas_changed(self, count: int) -> None:
        """There are so many replicas now."""
        if count < self._frozen // 2:
            gc.unfreeze()
        elif count <= self._frozen + max(REPLICAS_MIN, SHARE * self._frozen):
            return
        gc.collect()  # of what is not frozen
        gc.freeze()
        self._frozen = count
