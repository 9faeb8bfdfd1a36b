"""Who may connect, and who may do what: access control lists (ACLs, KIP-11)."""
