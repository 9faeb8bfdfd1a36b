"""The broker as a whole: its parts constructed, then wired, in one visible place (`service.py`)."""
