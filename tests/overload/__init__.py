"""Overload: clients that take all they can get, while others must be served: `make overload`, and its short forms."""
