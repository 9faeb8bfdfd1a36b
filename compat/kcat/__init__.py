"""kcat's driver."""
