"""The soak: hours of mixed load with clients that come, go and hang, after which the broker must be as it was: `make soak HOURS=2`."""
