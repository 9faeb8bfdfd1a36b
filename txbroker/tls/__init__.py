"""TLS of listeners and of clients: Kafka's `ssl.` keys, stores of certificates, contexts of Python's ssl module, principals."""
