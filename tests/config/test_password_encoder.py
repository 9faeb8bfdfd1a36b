"""Passwords in dynamic configurations: the form of Kafka's brokers, read and written by both sides; rotation of the secret; refusals."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.config.configs import broker_config
from tests.support import java
from tests.support.cache import KAFKA_OLD
from tests.support.waiting import PATIENCE_S
from txbroker.config.alter import Change, Operation, alter_broker_configs, encrypted
from txbroker.config.password_encoder import CBC, CIPHERS, FACTORIES, GCM, EncoderSettings, NotDecoded, PasswordEncoder, Unavailable
from txbroker.errors import BrokerError, ConfigError, ErrorCode

PASSWORDS = ["", "secret", "p,w:x=1", "0123456789abcdef", "ü€\U0001f511", "x" * 5000]
KEY = "listener.name.a.ssl.key.password"


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("bits", [128, 192, 256])
@pytest.mark.parametrize("factory", [None, *FACTORIES])
def test_what_is_encrypted_is_read_again_and_different_each_time(cipher: str, bits: int, factory: str | None) -> None:
    encoder = PasswordEncoder(EncoderSettings("a secret", None, factory, cipher, bits, 1024))
    for password in PASSWORDS:
        one, other = encoder.encode(password, os.urandom), encoder.encode(password, os.urandom)
        assert one != other and (len(password) < 3 or password not in one)
        # Another broker has the secret, and other settings.
        assert PasswordEncoder(EncoderSettings("a secret")).decode(one) == encoder.decode(other) == password


def test_another_secret_does_not_read_it() -> None:
    """Padding fits by chance once in 256 times; then the length does not."""
    encoder = PasswordEncoder(EncoderSettings("a secret", iterations=1))
    for number in range(600):
        other = PasswordEncoder(EncoderSettings(f"another {number}", iterations=1))
        with pytest.raises(NotDecoded, match=r"it is not encrypted by password\.encoder\.secret"):
            other.decode(encoder.encode("secret", Random(number).randbytes))


def test_what_is_not_in_the_form_is_refused() -> None:
    encoder = PasswordEncoder(EncoderSettings("a secret", iterations=1024))
    text = encoder.encode("secret", os.urandom)
    fields = [part.partition(":")[::2] for part in text.split(",")]
    assert [name for name, _ in fields] == ["initializationVector", "keyLength", "salt", "keyFactoryAlgorithm", "cipherAlgorithm",
                                            "iterations", "passwordLength", "encryptedPassword"]  # fmt: skip
    for missing, _ in fields:
        with pytest.raises(NotDecoded):
            encoder.decode(",".join(f"{name}:{value}" for name, value in fields if name != missing))
        for wrong in ("", "x", "-1", "99999999999", "AAAA", "²"):
            with pytest.raises(NotDecoded):
                encoder.decode(",".join(f"{name}:{wrong if name == missing else value}" for name, value in fields))
    for other in ("", "secret", ",:,", "\0" * 100):
        with pytest.raises(NotDecoded):
            encoder.decode(other)


def test_the_old_secret_is_read_and_replaced() -> None:
    old = PasswordEncoder(EncoderSettings("old", iterations=1024))
    both = PasswordEncoder(EncoderSettings("new", "old", iterations=1024))
    new = PasswordEncoder(EncoderSettings("new", iterations=1024))
    text = old.encode("secret", os.urandom)
    assert both.decode(text) == "secret"
    again = both.encoded_again(text, os.urandom)
    assert new.decode(again) == "secret" and both.encoded_again(again, os.urandom) == again
    assert new.encoded_again(text, os.urandom) == text, "the old secret is not there any more"
    foreign = PasswordEncoder(EncoderSettings("third", iterations=1024)).encode("secret", os.urandom)
    assert both.encoded_again(foreign, os.urandom) == foreign


@pytest.mark.process
@pytest.mark.extended
def test_as_kafka(tmp_path: Path) -> None:
    classes = java.compiled(Path(__file__).parent / "PasswordCodec.java", tmp_path, KAFKA_OLD)
    secret = "ein gehörtes secret"
    for factory, cipher, bits in (("", CBC, 128), ("PBKDF2WithHmacSHA256", CBC, 256), ("", GCM, 128)):
        ours = PasswordEncoder(EncoderSettings(secret, None, factory or None, cipher, bits))
        texts = [ours.encode(password, os.urandom) for password in PASSWORDS]
        wrong = PasswordEncoder(EncoderSettings("another")).encode("secret", os.urandom)
        lines = [f"decode {coded(text)}" for text in (*texts, wrong, "nonsense")] + [f"encode {coded(password)}" for password in PASSWORDS]
        command = [*java.class_path(KAFKA_OLD, classes, log_level="FATAL"), "PasswordCodec", coded(secret), coded(factory), coded(cipher),
                   str(bits), "4096"]  # fmt: skip
        ended = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        found = [None if line == "refused" else base64.b64decode(line[1:]).decode() for line in ended.stdout.splitlines()]
        count = len(PASSWORDS)
        assert found[: count + 2] == [*PASSWORDS, None, None]
        theirs = [text for text in found[count + 2 :] if text is not None]
        assert [ours.decode(text) for text in theirs] == PASSWORDS
        assert {part.partition(":")[0] for part in theirs[0].split(",")} == {part.partition(":")[0] for part in texts[0].split(",")}


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_settings() -> None:
    text = "password.encoder.secret=s\npassword.encoder."
    assert broker_config("").passwords is None
    with pytest.raises(ConfigError, match=r"server.properties:2: password.encoder.key.length is 100; AES has keys of 128, 192 or 256"):
        broker_config(f"{text}key.length=100")
    with pytest.raises(ConfigError, match=r"password.encoder.cipher.algorithm is 'DES'; it must be one of AES/CBC/PKCS5Padding"):
        broker_config(f"{text}cipher.algorithm=DES")
    with pytest.raises(ConfigError, match=r"password.encoder.keyfactory.algorithm is 'PBKDF1'; it must be one of PBKDF2WithHmacSHA1"):
        broker_config(f"{text}keyfactory.algorithm=PBKDF1")


@pytest.mark.parametrize(("text", "name", "per_broker", "message"), [
    ("", KEY, True, f"{KEY} cannot be stored: Password encoder secret not configured; set password.encoder.secret in the file of the "
     "broker, and start it again"),
    ("password.encoder.secret=s", KEY, False, f"{KEY} can be set only for a single broker, not as the default of all brokers"),
    ("password.encoder.secret=s", "ssl.key.password", True,
     "ssl.key.password cannot be changed while the broker runs: set listener.name.<listener>.ssl.key.password"),
    ("password.encoder.secret=s", "password.encoder.secret", True, "password.encoder.secret cannot be changed while the broker runs"),
])  # fmt: skip
def test_what_cannot_be_stored_is_refused(text: str, name: str, per_broker: bool, message: str) -> None:
    with pytest.raises(BrokerError) as refused:
        encrypted(broker_config(text), [Change(name, Operation.SET, "plain text")], os.urandom, per_broker=per_broker)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_stored_password_is_the_value_and_one_that_cannot_be_read_prevents_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = broker_config("password.encoder.secret=s\npassword.encoder.iterations=1024")
    (change,) = encrypted(config, [Change(KEY, Operation.SET, "plain text")], os.urandom, per_broker=True)
    stored = alter_broker_configs(config, {}, [change], per_broker=True)
    assert "plain text" not in stored[KEY]
    config.set_dynamic(stored, {})
    assert config.listener("A").text("ssl.key.password") == "plain text"
    other = broker_config("password.encoder.secret=another\npassword.encoder.iterations=1024")
    other.set_dynamic(stored, {})
    assert other.listener("A").optional_text("ssl.key.password") is None
    expected = f"ignoring the dynamic value of {KEY}: it is not encrypted by password.encoder.secret; set it again"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [expected]
    # As Kafka, which stores this without an effect: it prevents no change of another key.
    foreign = {**stored, "listener.name.a.plain.sasl.jaas.config": "initializationVector:x"}
    threads = [Change("log.cleaner.threads", Operation.SET, "2")]
    assert alter_broker_configs(other, foreign, threads, per_broker=True) == {**foreign, "log.cleaner.threads": "2"}


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PasswordEncoder(EncoderSettings("s", iterations=1024)).encode("secret", os.urandom)
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    encoder = PasswordEncoder(EncoderSettings("s", iterations=1024))
    with pytest.raises(Unavailable, match=r"pip install 'txbroker\[security\]'"):
        encoder.decode(text)
    config = broker_config("password.encoder.secret=s\npassword.encoder.iterations=1024")
    config.set_dynamic({KEY: text}, {})
    assert config.listener("A").optional_text("ssl.key.password") is None
    with pytest.raises(BrokerError, match=r"pip install 'txbroker\[security\]'"):
        encrypted(config, [Change(KEY, Operation.SET, "x")], os.urandom, per_broker=True)
