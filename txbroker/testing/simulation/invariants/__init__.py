"""What must hold in a world: I1 to I12, as the documentation of the simulation numbers them."""
