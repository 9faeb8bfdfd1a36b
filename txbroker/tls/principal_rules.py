"""`ssl.principal.mapping.rules`: a principal's name from the distinguished name of a certificate (KIP-371, SslPrincipalMapper).

The rules are separated by commas: DEFAULT, which takes the whole name, or RULE:pattern/replacement/, with L or U at the end for lower or
upper case. The first rule whose pattern matches the whole name applies. The replacement is then made as Java's `replaceAll` does: at each
match of the pattern, and `$1` is the first group.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_SPLITTER = re.compile(rf"\s*({_RULE}.*?|(.*?))\s*([,\n]|$)")
_PARSER = re.compile(_RULE)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")  # in Python (?P<
_REFERENCE = re.compile(r"\\(.)|\$(\d)(\d*)|\$\{([A-Za-z][A-Za-z0-9]*)\}|(\$|\\$)|([^\\$]+)", re.DOTALL)
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


class InvalidRule(ValueError):
    """A rule that cannot be used; the text has it."""


class NoRule(ValueError):
    """No rule matches a distinguished name."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: list[str | int]  # texts and groups
    case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        return self.case(self._replaced(name)) if self.pattern.fullmatch(name) else None

    def _replaced(self, name: str) -> str:
        """Java's `replaceAll`. `re.sub` treats matches of no characters in another way."""
        made: list[str] = []
        position = end = 0
        while position <= len(name) and (match := self.pattern.search(name, position)):
            made.append(name[end : match.start()])
            made += (part if isinstance(part, str) else match[part] or "" for part in self.replacement)
            end = match.end()
            position = end + (match.start() == end)
        return "".join(made) + name[end:]


class PrincipalRules:
    """Parsed rules."""

    def __init__(self, text: str) -> None:
        """InvalidRule."""
        rules = (found[1] for found in _SPLITTER.finditer(text.strip()))
        self._rules = [_parse(rule) for rule in rules if rule]

    def name(self, distinguished_name: str) -> str:
        """The name of the principal; NoRule."""
        for rule in self._rules:
            made = distinguished_name if rule is None else rule.apply(distinguished_name)
            if made is not None:
                return made
        raise NoRule(f"no rule of ssl.principal.mapping.rules matches {distinguished_name}; add one, or DEFAULT as the last one")


def _parse(text: str) -> _Rule | None:
    """None for DEFAULT."""
    match = _PARSER.fullmatch(text)
    if match is None:
        raise InvalidRule(f"'{text}' is not DEFAULT or RULE:pattern/replacement/ with L or U at the end")
    if match[1]:
        return None
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", match[2]))
    except re.error as error:
        raise InvalidRule(f"'{text}' has an invalid pattern: {error}") from None
    return _Rule(pattern, [part for found in _REFERENCE.finditer(match[3]) for part in _parts(found, pattern, text)], _CASES[match[4]])


def _parts(part: re.Match[str], pattern: re.Pattern[str], rule: str) -> list[str | int]:
    escaped, digit, more, name, alone, plain = part.groups()
    if digit is not None:
        return _group(digit, more, pattern.groups)
    if name is not None and name in pattern.groupindex:
        return [pattern.groupindex[name]]
    if name is not None or alone is not None:
        raise InvalidRule(f"'{rule}' refers to a group that its pattern does not have: {name or alone}")
    return [plain if escaped is None else escaped]


def _group(digit: str, more: str, groups: int) -> list[str | int]:
    """A number that is no group is text, as in Kafka. Further digits count only as far as there is such a group."""
    number = int(digit)
    if number > groups:
        return [f"${digit}{more}"]
    used = 0
    while used < len(more) and 10 * number + int(more[used]) <= groups:
        number = 10 * number + int(more[used])
        used += 1
    return [number, more[used:]]
