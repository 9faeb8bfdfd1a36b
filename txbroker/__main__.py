"""`python -m txbroker` runs the command `txbroker`."""

from txbroker.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
