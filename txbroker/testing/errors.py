"""The errors of the test kit."""

from __future__ import annotations


class KitError(Exception):
    """A broker could not be started, or an argument is invalid. The text is one line that says what to do."""


class NoAnswer(KitError):
    """A control port does not answer: its broker has ended, or hangs."""


class UnmatchedRule(AssertionError):
    """A rule of a test never acted, so the test does not show what it is for."""


class EditError(AssertionError):
    """A function of `edit` did not change an answer: the client got the original one. Its own exception, if any, is the cause."""
