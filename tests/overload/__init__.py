"""Overload tests: clients that use all the resources they can get, while other clients must be served: `make overload`."""
