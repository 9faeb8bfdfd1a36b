"""Clients that require an unsupported feature: what is counted and logged."""

from __future__ import annotations

import pytest

from txbroker.api.request_context import Session
from txbroker.api.unsupported_features import LOGGED_CLIENT_ID_MAX, LOGGED_CLIENTS_MAX, UNUSED_CONNECTIONS_MAX, Feature, UnsupportedFeatures


def session(host: str = "10.0.0.9") -> Session:
    return Session(peer_host=host, peer_port=5000, local_host="10.0.0.1", local_port=9092, listener="INTERNAL", number=7)


def test_one_log_line_for_each_client_and_feature(caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    for _ in range(3):
        features.required(Feature.SASL, session(), "me")
        features.required(Feature.TLS, session(), None)
    features.required(Feature.SASL, session("10.0.0.8"), "me")
    assert [record.message for record in caplog.records] == [
        "client 10.0.0.9:5000 (client id 'me') requires SASL; listener INTERNAL://10.0.0.1:9092 is PLAINTEXT: "
        "set security.protocol=PLAINTEXT in the client",
        "client 10.0.0.9:5000 requires TLS; listener INTERNAL://10.0.0.1:9092 is PLAINTEXT: set security.protocol=PLAINTEXT in the client",
        "client 10.0.0.8:5000 (client id 'me') requires SASL; listener INTERNAL://10.0.0.1:9092 is PLAINTEXT: "
        "set security.protocol=PLAINTEXT in the client",
    ]
    assert features.counts == {Feature.SASL: 4, Feature.TLS: 3}


@pytest.mark.parametrize("feature", Feature)
def test_client_names_with_any_characters(feature: Feature, caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    features.required(feature, session(), "{}%s\n\x1b" + "x" * 10_000)
    (record,) = caplog.records
    assert "'{}%s\\n\\x1bxxx" in record.message
    assert len(record.message) < 300 + LOGGED_CLIENT_ID_MAX


def test_the_number_of_logged_clients_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    for number in range(LOGGED_CLIENTS_MAX):
        features.required(Feature.SASL, session(), str(number))
    caplog.clear()
    features.required(Feature.SASL, session(), "0")
    assert not caplog.records
    features.required(Feature.SASL, session(), "one more")
    features.required(Feature.SASL, session(), "1")
    assert len(caplog.records) == 1, "only the oldest was dropped"
    features.required(Feature.SASL, session(), "0")
    assert len(caplog.records) == 2
    assert len(features._logged) == LOGGED_CLIENTS_MAX


def test_a_client_that_sends_only_api_versions(caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    for _ in range(3):
        features.closed_unused(session(), "me")
    assert [record.message for record in caplog.records] == [
        "client 10.0.0.9:5000 (client id 'me') sent only ApiVersions and closed its connection: if it fails, it requires an API that this "
        "broker does not have, or another security protocol; listener INTERNAL://10.0.0.1:9092 is PLAINTEXT: "
        "set security.protocol=PLAINTEXT in the client"
    ]
    assert features.counts == {Feature.MISSING_API: 3}


def test_a_client_that_closes_a_connection_unused_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    for _ in range(2):
        features.used(session(), "me")
        for _ in range(UNUSED_CONNECTIONS_MAX):
            features.closed_unused(session(), "me")
    assert not caplog.records and not features.counts
    features.closed_unused(session(), "me")
    features.closed_unused(session(), "another")
    assert len(caplog.records) == 2
    for number in range(3 * LOGGED_CLIENTS_MAX):
        features.used(session(), str(number))
    assert len(features._unused) == LOGGED_CLIENTS_MAX


def test_own_clients_may_close_connections_that_they_did_not_use(caplog: pytest.LogCaptureFixture) -> None:
    features = UnsupportedFeatures()
    ours = session()
    ours.software = "txbroker 0.1.0"
    features.closed_unused(ours, "broker-2-fetcher-0")
    assert not caplog.records
    assert not features.counts
