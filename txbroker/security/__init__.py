"""Who may connect, and who may do what: logins (SASL), and access control lists (ACLs, KIP-11)."""
