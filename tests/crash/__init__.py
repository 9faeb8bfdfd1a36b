"""Kill -9 under a producing load, again and again: nothing that was acknowledged is ever lost."""
