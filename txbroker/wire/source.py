"""Helpers of the code generators: indented source, scopes, and compiled functions whose source appears in tracebacks."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any


class Source:
    """Lines of Python being written, with an indentation and a supply of fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names = 0

    def __call__(self, line: str) -> None:
        """Add one line at the current depth."""
        self.lines.append(" " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """A name that was not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def block(self, header: str) -> _Block:
        """`with source.block("for …:"):` indents the lines that are added inside."""
        self(header)
        return _Block(self)


class _Block:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.depth += 1

    def __exit__(self, *_: object) -> None:
        self._source.depth -= 1


def compile_function(source: Source, scope: dict[str, Any], name: str, title: str) -> Callable[..., Any]:
    """Execute the source and return its function `name`; tracebacks show `title` as its file name."""
    text = "\n".join(source.lines) + "\n"
    filename = f"<txbroker {title}>"
    exec(compile(text, filename, "exec"), scope)
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    made: Callable[..., Any] = scope[name]
    return made
