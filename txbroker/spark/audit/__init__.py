"""The audit: whether what was written to topics was delivered, record by record and key by key."""
