"""Tables that `load` appends to: the data and the offsets that it covers are committed in one step."""
