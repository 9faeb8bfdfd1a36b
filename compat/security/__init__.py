"""Clients on secured listeners: what works, and what each client says when it does not."""
