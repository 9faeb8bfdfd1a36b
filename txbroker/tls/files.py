"""Files of certificates and keys."""

from __future__ import annotations

import os
import ssl

from txbroker.platform import system
from txbroker.regular_files import read_regular

STORE_BYTES_MAX = 16 << 20


def read(path: str) -> bytes:
    """The content of a store; OSError, also if it is too large to be one."""
    return read_regular(path, STORE_BYTES_MAX)


def stamp(path: str) -> tuple[int, int, int] | None:
    """What changes if a file is replaced or written, also behind a symbolic link; None if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_key(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Load a private key and its certificates. ssl takes them from files only: this one is in memory. OSError, ValueError."""
    with system.secret_file(pem.encode()) as path:
        # The function is called only for an encrypted key; without it OpenSSL would ask at the terminal.
        context.load_cert_chain(path, password=lambda: password or "")
