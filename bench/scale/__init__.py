"""How costs grow with connections, partitions and groups: `python -m bench scale`, SCALE.md."""
