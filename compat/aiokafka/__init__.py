"""aiokafka's driver."""
