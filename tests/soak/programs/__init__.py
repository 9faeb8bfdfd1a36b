"""Client programs of a soak, each a process of its own that can be killed and stopped: `python -m tests.soak.programs LIBRARY ...`."""
