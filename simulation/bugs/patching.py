"""What a deliberate bug consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Patch(NamedTuple):
    """An attribute of a class or module, and what replaces it."""

    owner: Any
    attribute: str
    value: Any

    @property
    def holder(self) -> Any:
        """Where the attribute is: the owner, or the class that it inherits it from. KeyError if there is none."""
        for holder in getattr(self.owner, "__mro__", (self.owner,)):
            if self.attribute in vars(holder):
                return holder
        raise KeyError(self.attribute)


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """While these patches are made."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for patch in patches:
            holder = patch.holder
            before.append((holder, patch.attribute, vars(holder)[patch.attribute]))
            setattr(holder, patch.attribute, patch.value)
        yield
    finally:
        for owner, attribute, value in reversed(before):
            setattr(owner, attribute, value)
