"""Client programs of a soak test, each a process that can be killed and suspended: `python -m tests.soak.programs LIBRARY ...`."""
