"""`python -m release`, or `make release`: build and check everything that a release consists of. CONTRIBUTING.md describes it."""
