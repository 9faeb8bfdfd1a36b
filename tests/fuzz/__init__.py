"""Hostile input: no input may stop the broker, or make its memory exceed its limits."""
