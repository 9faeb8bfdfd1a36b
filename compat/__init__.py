"""Real clients on a broker: the table of features (`python -m compat`), and a package index through all clients (`compat.demo`)."""
