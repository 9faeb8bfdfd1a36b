"""Crash tests: kill -9 under a produce load, many times; no acknowledged record may be lost."""
