"""Principals as text: the list of `super.users`, and mistakes in one principal."""

from __future__ import annotations

import re

USER = "User"  # the type of every client's principal (DefaultKafkaPrincipalBuilder)
_SEVERAL = re.compile(rf",\s*{USER}:")


def split_principals(text: str) -> list[str]:
    """The parts between semicolons that are not empty, as StandardAuthorizer of Kafka splits super.users."""
    return [part for part in map(str.strip, text.split(";")) if part]


def mistake(principal: str) -> str | None:
    """Why no client has this principal, which has the form Type:name, and what to write; None if one may have it. Kafka accepts it."""
    kind, _, name = principal.partition(":")
    if "," in kind or _SEVERAL.search(name):
        return "it is a single principal, commas do not separate several; write each as User:name on its own"
    if kind != USER:
        advice = f"write {USER}:{name}" if kind.strip().lower() == USER.lower() else f"clients have principals of the type {USER} only"
        return f"its type is {kind!r}; {advice}"
    return None if name else f"it has no name; write {USER}:name"
