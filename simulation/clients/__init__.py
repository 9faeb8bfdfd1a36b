"""Clients of the simulation: random work on the cluster, over the project's own client connections, with records of what they saw."""
