"""Real clients against a broker: the table client x feature (`python -m compat`), and a whole package index through all (`compat.demo`)."""
