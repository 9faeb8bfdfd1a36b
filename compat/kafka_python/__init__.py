"""kafka-python's driver."""
