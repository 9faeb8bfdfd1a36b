"""JAAS login configurations in properties (`sasl.jaas.config`, KIP-85) and in files: parsed as Kafka's JaasConfig does, never evaluated.

    Class flag name=value ... ;

A file has sections of such entries (javax.security.auth.login.Configuration):

    Name { Class flag name=value ... ; };

A word has letters, digits after a letter, and `. - _ $`; other values are quoted with " or ', with the escapes of C. Comments are those of
Java, and a `/` begins one by itself (java.io.StreamTokenizer with Kafka's settings).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_NAMED = ("username", "password")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
_LINE_ENDS = "\n\r"


class InvalidJaas(ValueError):
    """The text is not a login configuration; the message follows the name of its key. It has no part of the text, which has passwords."""


class LoginModule(NamedTuple):
    """One entry. If an option is repeated, its last value counts."""

    name: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The only login module of a configuration; InvalidJaas."""
    tokens = _Tokens(text)
    modules = []
    while tokens.advance():
        modules.append(_module(tokens))
    if len(modules) != 1:
        raise InvalidJaas(f"must have one login module, and has {len(modules) or 'none'}")
    return modules[0]


def parse_jaas_file(text: str, section: str) -> LoginModule:
    """The only login module of a section of a file; InvalidJaas."""
    tokens = _Tokens(text)
    found: list[LoginModule] | None = None
    while tokens.advance():
        name, modules = tokens.text, []
        if name is None or not tokens.advance() or tokens.mark != "{":
            raise InvalidJaas("does not consist of sections; write `Name { ... };`")
        while tokens.advance() and tokens.mark != "}":
            modules.append(_module(tokens))
        if tokens.mark != "}" or not tokens.advance() or tokens.mark != ";":
            raise InvalidJaas(f"has no `}};` at the end of the section {name[:200]}")
        if name == section:
            if found is not None:
                raise InvalidJaas(f"has the section {section} twice")
            found = modules
    if found is None:
        raise InvalidJaas(f"has no section {section}")
    if len(found) != 1:
        raise InvalidJaas(f"must have one login module in the section {section}, and has {len(found) or 'none'}")
    return found[0]


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.text
    if name is None:
        raise InvalidJaas("does not begin with the class of a login module")
    if not tokens.advance() or tokens.text is None or tokens.text.upper() not in _FLAGS:
        raise InvalidJaas("has no control flag after the login module; write `required` there")
    options: dict[str, str] = {}
    while tokens.advance() and tokens.mark != ";":
        option = tokens.text
        if not tokens.advance() or tokens.mark != "=" or not tokens.advance() or tokens.text is None:
            # Another word may be a part of a password without quotation marks.
            named = f"the option {option}" if option in _NAMED else f"option {len(options) + 1}"
            raise InvalidJaas(f'has no value for {named}; write name="value"')
        if option is not None:
            options[option] = tokens.text
    if tokens.mark != ";":
        raise InvalidJaas("has no semicolon at its end")
    return LoginModule(name, options)


class _Tokens:
    """The tokens of a text: `text` of a word or a quoted one, None for others; `mark`: the character of one that is neither."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self.text: str | None = None
        self.mark = ""

    def advance(self) -> bool:
        """Go to the next token; False at the end."""
        self.text, self.mark = None, ""
        while True:
            first = self._peek()
            if not first:
                return False
            if first == "/":
                self._skip_comment()
            elif first <= " ":
                self._position += 1
            else:
                break
        if first in "\"'":
            self._position += 1
            self.text = self._quoted(first)
        elif first.isascii() and first in ".-0123456789":
            self._number(first)
        elif _is_letter(first):
            start = self._position
            while (character := self._peek()) and (_is_letter(character) or character in ".-0123456789"):
                self._position += 1
            self.text = self._source[start : self._position]
        else:
            self._position += 1
            self.mark = first
        return True

    def _peek(self) -> str:
        return self._source[self._position : self._position + 1]

    def _number(self, first: str) -> None:
        """A number, which is no text; a minus before anything else is a character of its own."""
        self._position += 1
        if first == "-":
            following = self._peek()
            if not following or following not in ".0123456789":
                self.mark = "-"
                return
            first = following
            self._position += 1
        dots = first == "."
        while (character := self._peek()) and (character in "0123456789" or (character == "." and not dots)):
            dots = dots or character == "."
            self._position += 1

    def _quoted(self, quote: str) -> str:
        """Up to the same quotation mark, or the end of the line."""
        parts: list[str] = []
        while (character := self._peek()) and character not in _LINE_ENDS:
            self._position += 1
            if character == quote:
                break
            parts.append(self._escaped() if character == "\\" else character)
        return "".join(parts)

    def _escaped(self) -> str:
        first = self._peek()
        self._position += 1
        if not first:
            return "\uffff"  # Java's reader has ended
        if first not in _OCTAL:
            return _ESCAPES.get(first, first)
        digits = first
        longest = 3 if first <= "3" else 2
        while len(digits) < longest and (digit := self._peek()) and digit in _OCTAL:
            digits += digit
            self._position += 1
        return chr(int(digits, 8))

    def _skip_comment(self) -> None:
        self._position += 1
        if self._peek() == "*":
            end = self._source.find("*/", self._position + 1)
            self._position = len(self._source) if end < 0 else end + 2
            return
        self._position += 1  # this character belongs to it, even if it ends the line
        while (character := self._peek()) and character not in _LINE_ENDS:
            self._position += 1


def _is_letter(character: str) -> bool:
    """What a word may begin with; all characters beyond Latin-1's controls are."""
    return (character.isascii() and (character.isalpha() or character in "_$")) or character >= "\xa0"
