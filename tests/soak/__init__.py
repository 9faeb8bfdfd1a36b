"""The soak test: hours of mixed load from clients that connect, leave, hang and are killed: `make soak HOURS=2`."""
