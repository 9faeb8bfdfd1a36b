"""One handler module for each API key, or for a close family of keys."""
