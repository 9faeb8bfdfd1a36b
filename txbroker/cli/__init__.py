"""The command `txbroker`. Most of its subcommands are clients of a broker, on kafka-python or on the package client."""
