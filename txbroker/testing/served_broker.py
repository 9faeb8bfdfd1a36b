"""The broker of this process, for its control port."""

from __future__ import annotations

from typing import Any

from txbroker.testing.faults import Faults
from txbroker.testing.isr_bars import IsrBars


class Served:
    """`bars`: once clients are served."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.bars: IsrBars | None = None

    def ready(self, broker: Any) -> None:
        """Clients are served."""
        self.bars = IsrBars(broker.components)
        self.faults.ids.known = broker.components.replicas.topic_name
