"""server.properties, every broker and topic key, what a key's value is and where it comes from, and the listeners."""
