"""The command `txbroker`. Its subcommands but `run` and `dump-log` are clients: they speak the wire protocol through kafka-python."""
