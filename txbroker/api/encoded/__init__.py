"""Responses that are encoded once and reused: their unchanged parts are kept as bytes."""
