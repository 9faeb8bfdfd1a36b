"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-219): limits of rates by user and client id, and how long a client must pause."""
