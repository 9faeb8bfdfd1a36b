"""The transaction coordinator: the state of each transactional id, and its records in `__transaction_state`."""
