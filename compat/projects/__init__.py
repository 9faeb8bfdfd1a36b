"""Tests of other projects on the fixture `txbroker`: `python -m compat.projects`."""
