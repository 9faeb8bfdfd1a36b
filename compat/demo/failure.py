"""The error that ends a demonstration."""

from __future__ import annotations


class DemoFailed(Exception):
    """The text is one sentence for the user."""
