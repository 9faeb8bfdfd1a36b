"""Connections to brokers in this project's own messages, for the commands."""
