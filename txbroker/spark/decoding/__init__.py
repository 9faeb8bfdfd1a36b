"""Decoding of records' values, into columns beside the raw ones."""
