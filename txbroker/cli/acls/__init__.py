"""`txbroker acls`."""
