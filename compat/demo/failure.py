"""Why a demonstration cannot go on."""

from __future__ import annotations


class DemoFailed(Exception):
    """One sentence for the person who runs it."""
