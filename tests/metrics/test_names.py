"""The metrics that public dashboards and alerts use: Strimzi's for Kafka and Kafka Exporter, and kafka_exporter's own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.metrics.scraping import ON, OPENMETRICS, Scrape, get
from tests.metrics.test_groups import commit
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic, find_coordinator
from tests.support.raw_log import batch, fetch, produce
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

KAFKA = """
    kafka_cluster_partition_atminisr{partition,topic}
    kafka_cluster_partition_replicascount{partition,topic}
    kafka_cluster_partition_underminisr{partition,topic}
    kafka_controller_kafkacontroller_activecontrollercount
    kafka_controller_kafkacontroller_globalpartitioncount
    kafka_controller_kafkacontroller_globaltopiccount
    kafka_controller_kafkacontroller_offlinepartitionscount
    kafka_coordinator_group_groupmetadatamanager_numgroups
    kafka_coordinator_group_groupmetadatamanager_numgroupsstable
    kafka_log_log_logendoffset{partition,topic}
    kafka_log_log_logstartoffset{partition,topic}
    kafka_log_log_numlogsegments{partition,topic}
    kafka_log_log_size{partition,topic}
    kafka_log_logflushstats_logflushrateandtimems{quantile}
    kafka_log_logmanager_offlinelogdirectorycount
    kafka_network_requestmetrics_errors_total{error,request}
    kafka_network_requestmetrics_requests_total{request,version}
    kafka_network_requestmetrics_totaltimems{quantile,request}
    kafka_network_requestmetrics_totaltimems_count{request}
    kafka_network_socketserver_networkprocessoravgidle_percent
    kafka_network_socketserver_networkprocessoravgidlepercent
    kafka_server_brokertopicmetrics_bytesin_total{topic}
    kafka_server_brokertopicmetrics_bytesout_total{topic}
    kafka_server_brokertopicmetrics_bytesrejected_total{topic}
    kafka_server_brokertopicmetrics_failedfetchrequests_total{topic}
    kafka_server_brokertopicmetrics_failedproducerequests_total{topic}
    kafka_server_brokertopicmetrics_messagesin_total
    kafka_server_brokertopicmetrics_messagesin_total{topic}
    kafka_server_brokertopicmetrics_totalfetchrequests_total{topic}
    kafka_server_brokertopicmetrics_totalproducerequests_total{topic}
    kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation}
    kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total
    kafka_server_fetchsessioncache_numincrementalfetchsessions
    kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
    kafka_server_replicamanager_isrexpands_total
    kafka_server_replicamanager_isrshrinks_total
    kafka_server_replicamanager_leadercount
    kafka_server_replicamanager_offlinereplicacount
    kafka_server_replicamanager_partitioncount
    kafka_server_replicamanager_underminisrpartitioncount
    kafka_server_replicamanager_underreplicatedpartitions
    kafka_server_socket_server_metrics_connection_count{listener,networkProcessor}
    process_cpu_seconds_total
    process_open_fds
    process_resident_memory_bytes
    process_start_time_seconds
"""
EXPORTER = """
    kafka_broker_info{address,id}
    kafka_brokers
    kafka_consumergroup_current_offset{consumergroup,partition,topic}
    kafka_consumergroup_current_offset_sum{consumergroup,topic}
    kafka_consumergroup_lag{consumergroup,partition,topic}
    kafka_consumergroup_lag_sum{consumergroup,topic}
    kafka_consumergroup_members{consumergroup}
    kafka_topic_partition_current_offset{partition,topic}
    kafka_topic_partition_in_sync_replica{partition,topic}
    kafka_topic_partition_leader_is_preferred{partition,topic}
    kafka_topic_partition_leader{partition,topic}
    kafka_topic_partition_oldest_offset{partition,topic}
    kafka_topic_partition_replicas{partition,topic}
    kafka_topic_partition_under_replicated_partition{partition,topic}
    kafka_topic_partitions{topic}
"""


@pytest.fixture
def used(start_broker: Callable[..., Server]) -> Server:
    """A broker with some traffic of each kind."""
    server = start_broker(ON | {"offsets.topic.num.partitions": "1"})
    create_topic(server, "t", configs={**KEEP, "flush.messages": "1"})
    find_coordinator(server, "g")
    with RawConnection(server.address) as connection:
        assert produce(connection, "t", batch(numbered(3))).error_code == 0
        assert fetch(connection, "t", 0).size
        assert fetch(connection, "t", 9).error_code
        until(lambda: commit(connection, "g", "t", 0, 2) == 0, "the coordinator has loaded")
    return server


def test_the_metrics_of_dashboards_exist(used: Server) -> None:
    rows = re.findall(r"^ +(\w+)(?:\{(.*)\})?$", KAFKA + EXPORTER, re.M)
    wanted = {(name, tuple(filter(None, labels.split(",")))) for name, labels in rows}
    assert len(wanted) > 60
    for accept in ("", OPENMETRICS):
        scrape = Scrape(used, accept)
        reported = {(name, tuple(sorted(dict(labels)))) for name, samples in scrape.samples.items() for labels in samples}
        assert wanted - reported == set()


def test_every_family_is_contiguous_with_one_header(used: Server) -> None:
    create_topic(used, "many", 120)
    lines = get(used).body.decode().splitlines()
    heads = [line for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    names = [re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")]
    runs = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    assert len(runs) == len(set(runs)), "the samples of a name are contiguous"


def test_quantiles_are_named_as_the_exporter_names_them(used: Server) -> None:
    times = Scrape(used).samples["kafka_network_requestmetrics_totaltimems"]
    of_produce = {dict(labels)["quantile"] for labels in times if dict(labels)["request"] == "Produce"}
    assert of_produce == {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}
    assert all(0 < value < 60_000 for value in times.values())
