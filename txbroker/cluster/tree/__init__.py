"""The metadata tree: ZooKeeper's data model as an interface, and its implementations."""
