"""How cost grows with connections, partitions and groups: `python -m bench scale`, SCALE.md."""
