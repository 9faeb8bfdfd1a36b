"""Broker and topic configuration: server.properties, the keys, their values and sources, and the listeners."""
