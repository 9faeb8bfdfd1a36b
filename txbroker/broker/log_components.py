"""The components of a broker that maintain its logs: retention, the log cleaner, and what happens at intervals."""

from __future__ import annotations

from txbroker.broker.environment import Environment
from txbroker.cluster.replicas import Replicas
from txbroker.config.resolve import BrokerConfig
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.maintenance.on_demand_maintenance import OnDemandMaintenance
from txbroker.maintenance.periodic import Periodic
from txbroker.maintenance.retention import Retention


class LogComponents:
    """Of all log directories."""

    def __init__(self, environment: Environment, config: BrokerConfig, directories: LogDirectories, replicas: Replicas) -> None:
        self.directories = directories
        self.retention = Retention(environment.reactor, directories, replicas, environment.now_ms)
        self.cleaner = LogCleaner(
            environment.reactor,
            config,
            directories,
            replicas.high_watermark,
            environment.now_ms,
            lambda: environment.random.getrandbits(64),
            environment.cleaners,
            lambda topic_partition: self.retention.expire(topic_partition, lambda _: None),
        )
        self.on_demand = OnDemandMaintenance(self.cleaner, self.retention)
        self._periodic = Periodic(environment.reactor, config, directories, replicas, self.retention, environment.now_ms)

    def start(self) -> None:
        """Start the periodic work."""
        self._periodic.start()
        self.cleaner.start()

    def stop(self) -> None:
        """Stop it, and begin to write the last high watermarks."""
        self.cleaner.stop()
        self._periodic.stop()
        self._periodic.checkpoint_high_watermarks()
