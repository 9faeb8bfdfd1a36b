"""Generates `record_loops.py` from `record_loops_source.py`: `make generated`, a filter from standard input to standard output.

Each statement `x, position = read_unsigned(data, position, bits)` is replaced by the same code in place, which reads varints of one and
two bytes without a call. In plain Python the calls would cost a fifth to a half of the walk (bench/LIMITS.md).
"""

from __future__ import annotations

import re
import sys

_HEADING = "# Generated from record_loops_source.py by `make generated`: change that file.\n"
_CALL = re.compile(r"^( *)(\w+), position = read_unsigned\(data, position, (\d+)\)$", re.MULTILINE)
_IN_PLACE = """\
{i}{x} = data[position]
{i}position += 1
{i}if {x} > 127:
{i}    if data[position] > 127:
{i}        {x}, position = read_unsigned(data, position - 1, {bits})
{i}    else:
{i}        {x} += (data[position] << 7) - 128
{i}        position += 1"""


def generate(source: str) -> str:
    """The text of the generated module."""
    return _HEADING + _CALL.sub(lambda call: _IN_PLACE.format(i=call[1], x=call[2], bits=call[3]), source)


if __name__ == "__main__":
    sys.stdout.write(generate(sys.stdin.read()))
