"""The components of a broker that maintain its logs: retention, the log cleaner, and what happens at intervals."""

from __future__ import annotations

from txbroker.broker.world import World
from txbroker.cluster.replicas import Replicas
from txbroker.config.resolve import BrokerConfig
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.maintenance.on_demand_maintenance import OnDemandMaintenance
from txbroker.maintenance.periodic import Periodic
from txbroker.maintenance.retention import Retention


class LogComponents:
    """Of all log directories."""

    def __init__(self, world: World, config: BrokerConfig, directories: LogDirectories, replicas: Replicas) -> None:
        self.retention = Retention(world.reactor, directories, replicas, world.now_ms)
        self.cleaner = LogCleaner(
            world.reactor,
            config,
            directories,
            replicas.high_watermark,
            world.now_ms,
            lambda: world.random.getrandbits(64),
            world.cleaners,
            lambda topic_partition: self.retention.expire(topic_partition, lambda _: None),
        )
        self.on_demand = OnDemandMaintenance(self.cleaner, self.retention)
        self._periodic = Periodic(world.reactor, config, directories, replicas, self.retention, world.now_ms)

    def start(self) -> None:
        """Start the periodic work."""
        self._periodic.start()
        self.cleaner.start()

    def stop(self) -> None:
        """Stop it, and begin to write the last high watermarks."""
        self.cleaner.stop()
        self._periodic.stop()
        self._periodic.checkpoint_high_watermarks()
