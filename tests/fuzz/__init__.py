"""Hostile input: nothing that a peer sends may stop the broker, or make its memory grow past its limits."""
