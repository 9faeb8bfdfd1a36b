"""`txbroker doctor`: finds out why clients cannot connect, disks are full, topics do not expire or compact, or groups lag."""
