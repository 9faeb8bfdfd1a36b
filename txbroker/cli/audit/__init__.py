"""`txbroker audit keys`: what was last written for each key, and what of it each consumer group has been given (key-based auditing)."""
