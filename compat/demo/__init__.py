"""Debian's package index, produced once and read back by every client: counts, keys and checksums must agree."""
