"""Checks of whole clusters: histories of clients and their anomalies, and the deterministic simulation."""
