"""What must hold in a cluster: I1 to I13, as the documentation of the simulation numbers them."""
