"""What a connection waits for, and what has happened to its socket. The numbers are those of epoll (EPOLLIN, ...)."""

from __future__ import annotations

READ = 0x001
WRITE = 0x004
GONE = 0x008 | 0x010  # an error, or the peer has closed both sides
