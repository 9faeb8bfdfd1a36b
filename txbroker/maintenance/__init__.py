"""Background work on logs: cleaning, retention, checkpoints and flushes, on a schedule or on request."""
