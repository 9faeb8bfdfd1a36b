"""The broker as a whole: `components.py` constructs and connects its parts, `service.py` starts and stops them."""
