from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.describe import describe_broker
from txbroker.config.origins import rows
from txbroker.config.resolve import Source
from txbroker.errors import ConfigError

TEXT = """ssl.client.auth=requested
ssl.enabled.protocols=TLSv1.3
listener.name.internal.ssl.client.auth=required
listener.name.internal.ssl.key.password=secret
listener.name.internal.plain.sasl.jaas.config=PlainLoginModule required;
"""


def test_a_key_of_a_listener_overrides_the_key() -> None:
    config = broker_config(TEXT)
    internal, other = config.listener("INTERNAL"), config.listener("EXTERNAL")
    assert (internal.text("ssl.client.auth"), other.text("ssl.client.auth")) == ("required", "requested")
    assert internal.list("ssl.enabled.protocols") == other.list("ssl.enabled.protocols") == ("TLSv1.3",)
    assert internal.optional_text("ssl.truststore.location") is None
    assert internal.mechanism("PLAIN").text("sasl.jaas.config") == "PlainLoginModule required;"
    assert internal.mechanism("PLAIN").text("ssl.client.auth") == "required"
    assert internal.optional_text("sasl.jaas.config") is None


def test_a_dynamic_value_of_a_listener_overrides_all_others() -> None:
    config = broker_config(TEXT)
    config.set_dynamic({"listener.name.internal.ssl.client.auth": "none", "listener.name.external.ssl.client.auth": "required"}, {})
    assert config.listener("internal").text("ssl.client.auth") == "none"
    assert config.listener("external").text("ssl.client.auth") == "required"
    config.set_dynamic({}, {})
    assert config.listener("internal").text("ssl.client.auth") == "required"


def test_an_invalid_value_of_a_listener_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        broker_config("\nlistener.name.internal.ssl.client.auth=maybe")
    assert str(caught.value) == (
        "server.properties:2: listener.name.internal.ssl.client.auth is 'maybe'; it must be one of required, requested, none"
    )


def test_keys_of_listeners_are_described_with_the_keys_that_they_override() -> None:
    entries = {entry.name: entry for entry in describe_broker(broker_config(TEXT))}
    described = entries["listener.name.internal.ssl.client.auth"]
    assert (described.value, described.source, described.sensitive) == ("required", Source.STATIC_BROKER_CONFIG, False)
    assert [synonym.name for synonym in described.synonyms] == [described.name, "ssl.client.auth", "ssl.client.auth"]
    for name in ("listener.name.internal.ssl.key.password", "listener.name.internal.plain.sasl.jaas.config"):
        assert (entries[name].value, entries[name].sensitive) == (None, True)


def test_keys_of_listeners_are_printed_with_their_place_and_without_secrets() -> None:
    printed = {row.name: row for row in rows(broker_config(TEXT))}
    assert printed["listener.name.internal.ssl.client.auth"][1:3] == ("required", "server.properties:3")
    assert printed["listener.name.internal.ssl.key.password"][1:3] == ("[hidden]", "server.properties:4")
