"""`txbroker doctor`: why a client cannot connect, or why a topic is not cleaned or expired."""
