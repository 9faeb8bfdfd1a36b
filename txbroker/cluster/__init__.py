"""Cluster state: the metadata tree, the cluster image, partitions, replicas and the controller."""
