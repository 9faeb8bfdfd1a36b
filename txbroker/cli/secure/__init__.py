"""`txbroker secure`: certificates, users and configurations of secured brokers and their clients."""
