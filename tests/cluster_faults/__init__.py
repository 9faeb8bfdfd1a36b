"""Fault tests of a cluster: real brokers on a real ZooKeeper are killed, paused, stopped and restarted under producers and groups."""
