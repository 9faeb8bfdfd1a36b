"""What the clients of a plan with ACLs do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """`principals`: names of users, each with a client. `changing_s`: for so long ACLs change.

    `lost`: how likely the node that reports a change is deleted at once.
    """

    principals: tuple[str, ...]
    topics: tuple[str, ...]
    pause_s: float
    changing_s: float
    lost: float
