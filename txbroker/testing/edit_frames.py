"""How a broker asks the process of a test to change an answer: frames on a connection of its own for each answer.

The broker sends the key of the function, the API and version of the answer in JSON, and its body. The other process sends the changed body,
or why there is none, and gets the verdict: whether the broker has taken it. A frame is its size in four bytes, and so many bytes.
"""

from __future__ import annotations

import re
import struct

HOST = "127.0.0.1"
PLACE = re.compile(r"(?P<port>[0-9]{1,5})/(?P<key>[0-9a-f]{32})")  # of a function, as a rule has it
SIZE = struct.Struct(">I")
FRAME_BYTES_MAX = 1 << 28
EDITED, FAILED = b"\x01", b"\x00"  # before the changed body, and before the text of the problem
TAKEN, LATE, REMOVED = b"taken", b"late", b"removed"  # verdicts


def framed(content: bytes) -> bytes:
    """A frame."""
    return SIZE.pack(len(content)) + content
