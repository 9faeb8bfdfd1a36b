"""What the cluster is and who leads what: the metadata tree, the image, partitions, replicas and the controller."""
