"""A certificate for 127.0.0.1 and localhost, signed by itself and valid for 100 years, with its key: for listeners of tests only."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "tls_files"
CERTIFICATE = _FOLDER / "certificate.pem"
KEY = _FOLDER / "key.pem"
