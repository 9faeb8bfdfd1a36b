"""The metrics of transactions: ids by state, markers, verification, loading, and transactions that hang."""

from __future__ import annotations

from collections.abc import Callable

from tests.metrics.scraping import ON, Scrape
from tests.support import raw_transactions as raw
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import until

REPLICAS = "kafka_server_replicamanager_"
MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
VERIFICATION = "kafka_server_addpartitionstotxnmanager_"


def test_a_transaction_that_is_open_for_long(start_broker: Callable[..., Server], name: str) -> None:
    """Its records have a date years ago, which counts as the last sign of its producer, as in Kafka."""
    broker = start_broker(ON | {"transaction.state.log.num.partitions": "3"})
    create_topic(broker, name)
    with RawConnection(broker.address) as connection:
        producer = raw.initialize(connection, name)
        loading = Scrape(broker).samples
        for figure in ("max", "avg"):
            (took_ms,) = loading[f"kafka_server_transaction_coordinator_metrics_partition_load_time_{figure}"].values()
            assert 0 <= took_ms < 120_000
        assert raw.produce(connection, producer, name, 0, b"in no transaction") != 0
        raw.write(connection, producer, name, 0, b"one")
        scrape = Scrape(broker)
        states = scrape.by("txbroker_transactional_ids", "state")
        assert (states["Ongoing"], states["Empty"]) == (1, 0)
        assert scrape(f"{REPLICAS}partitionswithlatetransactionscount") == 1
        assert scrape(f"{REPLICAS}produceridcount") >= 1
        assert scrape("txbroker_transactions_oldest_open_ms") >= 0
        assert (scrape(f"{MARKERS}unknowndestinationqueuesize"), scrape(f"{MARKERS}logappendretryqueuesize")) == (0, 0)
        assert scrape(f"{VERIFICATION}verificationfailurerate_count") >= 1
        assert scrape(f"{VERIFICATION}verificationtimems_count") >= 2
        assert scrape(f"{VERIFICATION}verificationtimems", quantile="0.50") >= 0
        assert raw.end(connection, producer, commit=True) == 0

        def is_over() -> bool:
            after = Scrape(broker)
            ended = after.by("txbroker_transactional_ids", "state")["CompleteCommit"]
            return bool(ended) and not after("txbroker_transactions_oldest_open_ms")

        until(is_over, "the transaction has ended")
        assert Scrape(broker)(f"{REPLICAS}partitionswithlatetransactionscount") == 0
