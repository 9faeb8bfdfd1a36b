"""Requests between brokers: the controller's to every broker, and a broker's to the controller."""
