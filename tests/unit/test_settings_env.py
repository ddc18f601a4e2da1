"""Settings from the environment: what each variable is called, how it is read, and what a wrong one is told."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from inbox import (
    ConfigurationError,
    ConsumerSettings,
    DatabaseSettings,
    RabbitMQSettings,
    RetryPolicy,
    RetryRule,
    SQLiteQueueSettings,
    TlsSettings,
)
from inbox.adapters.websocket import OrbitSettings
from inbox.config import EnvironmentSettings
from inbox.core import environment
from inbox.core.environment import variables

ROOT = Path(__file__).parents[2]
CLASSES: list[type[EnvironmentSettings]] = [
    ConsumerSettings,
    DatabaseSettings,
    RabbitMQSettings,
    SQLiteQueueSettings,
    OrbitSettings,
]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in CLASSES:
        for variable in variables(kind, "INBOX_" + kind.environment_area):
            monkeypatch.delenv(variable.name, raising=False)


@pytest.mark.parametrize("kind", CLASSES)
def test_without_variables_they_are_the_defaults(kind: type[EnvironmentSettings]) -> None:
    assert kind.from_env() == kind()


@pytest.mark.parametrize("kind", CLASSES)
def test_every_field_has_a_variable(kind: type[EnvironmentSettings]) -> None:
    paths = [variable.path for variable in variables(kind, "INBOX_")]
    assert {path.partition(".")[0] for path in paths} == {field.name for field in fields(kind)}  # type: ignore[arg-type]
    assert len(paths) == len(set(paths))


def test_only_what_is_made_of_classes_is_left_to_code() -> None:
    assert [v.path for kind in CLASSES for v in variables(kind, "INBOX_") if v.form is None] == ["retry.rules"]


@pytest.mark.parametrize(
    ("kind", "name", "text", "setting"),
    [
        (ConsumerSettings, "INBOX_CONCURRENCY", " 16 ", ("concurrency", 16)),
        (ConsumerSettings, "INBOX_PREFETCH", "none", ("prefetch", None)),
        (ConsumerSettings, "INBOX_DEADLINE", "2.5", ("deadline", 2.5)),
        (ConsumerSettings, "INBOX_DEADLINE", "", ("deadline", 30.0)),
        (ConsumerSettings, "INBOX_DEADLINE", "  ", ("deadline", 30.0)),
        (ConsumerSettings, "INBOX_REPORT_INTERVAL", "None", ("report_interval", None)),
        (ConsumerSettings, "INBOX_RETRY_DELAYS", "0, 2.5,60", ("retry.delays", (0.0, 2.5, 60.0))),
        (ConsumerSettings, "INBOX_RETRY_MAX_ATTEMPTS", "9", ("retry.max_attempts", 9)),
        (ConsumerSettings, "INBOX_IDENTITY", "source+id", ("identity", "source+id")),
        (ConsumerSettings, "INBOX_FINGERPRINT", "type,data", ("fingerprint", ("type", "data"))),
        (ConsumerSettings, "INBOX_FINGERPRINT", "NONE", ("fingerprint", None)),
        (
            ConsumerSettings,
            "INBOX_UNKNOWN_TYPES",
            "job.*=ignore, odd=type=fail",
            ("unknown_types", {"job.*": "ignore", "odd=type": "fail"}),
        ),
        (DatabaseSettings, "INBOX_DATABASE_TLS", "Yes", ("tls", True)),
        (DatabaseSettings, "INBOX_DATABASE_PIPELINED_DUPLICATES", "0", ("pipelined_duplicates", False)),
        (DatabaseSettings, "INBOX_DATABASE_QUARANTINE_BYTES", "1048576", ("quarantine_bytes", 1 << 20)),
        (RabbitMQSettings, "INBOX_RABBITMQ_QUEUE_TYPE", "classic", ("queue_type", "classic")),
        (RabbitMQSettings, "INBOX_RABBITMQ_RETRY_QUEUES", "off", ("retry_queues", False)),
        (RabbitMQSettings, "INBOX_RABBITMQ_RETRY_QUEUES", "none", ("retry_queues", None)),
        (RabbitMQSettings, "INBOX_RABBITMQ_CONNECTION_NAME", "billing, eu", ("connection_name", "billing, eu")),
        (RabbitMQSettings, "INBOX_RABBITMQ_TLS", "on", ("tls", TlsSettings())),
        (RabbitMQSettings, "INBOX_RABBITMQ_TLS", "off", ("tls", None)),
        (RabbitMQSettings, "INBOX_RABBITMQ_TLS_CA", "/etc/ca.pem", ("tls.ca", "/etc/ca.pem")),
        (SQLiteQueueSettings, "INBOX_SQLITE_QUEUE_LEASE", "3", ("lease", 3.0)),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(
    kind: type[EnvironmentSettings], name: str, text: str, setting: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, value = setting
    monkeypatch.setenv(name, text)
    found: object = kind.from_env()
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "name", "text", "right"),
    [
        (ConsumerSettings, "INBOX_CONCURRENCY", "hunter2", "a whole number"),
        (ConsumerSettings, "INBOX_CONCURRENCY", "8.5", "a whole number"),
        (ConsumerSettings, "INBOX_DEADLINE", "30s", "a number, such as 30 or 0.5"),
        (ConsumerSettings, "INBOX_DEADLINE", "nan", "a number, such as 30 or 0.5"),
        (ConsumerSettings, "INBOX_DEADLINE", "inf", "a number, such as 30 or 0.5"),
        (ConsumerSettings, "INBOX_RETENTION", "hunter2", "a number, such as 30 or 0.5, or none"),
        (ConsumerSettings, "INBOX_RETRY_DELAYS", "1,,2", "a list with commas, of which each is a number"),
        (ConsumerSettings, "INBOX_IDENTITY", "hunter2", "one of id, source+id"),
        (
            ConsumerSettings,
            "INBOX_FINGERPRINT",
            "data,hunter2",
            "each is one of source, type, subject, data, sequence, or none",
        ),
        (ConsumerSettings, "INBOX_UNKNOWN_TYPES", "job.*", "name=value"),
        (ConsumerSettings, "INBOX_UNKNOWN_TYPES", "=ignore", "name=value"),
        (ConsumerSettings, "INBOX_UNKNOWN_TYPES", "a=ignore,a=fail", "each name once"),
        (ConsumerSettings, "INBOX_UNKNOWN_TYPES", "a=hunter2", "one of quarantine, ignore, fail"),
        (DatabaseSettings, "INBOX_DATABASE_TLS", "hunter2", "true or false"),
        (RabbitMQSettings, "INBOX_RABBITMQ_TLS", "hunter2", "true or false"),
        (RabbitMQSettings, "INBOX_RABBITMQ_HEARTBEAT", "none", "a whole number"),
    ],
)
def test_a_text_that_cannot_be_read_names_the_variable_and_what_is_right(
    kind: type[EnvironmentSettings], name: str, text: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as refused:
        kind.from_env()
    assert str(refused.value).startswith(f"{name} must be ")
    assert right in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (ConsumerSettings, {"INBOX_CONCURRENCY": "0"}, "concurrency must be between 1 and 1000"),
        (ConsumerSettings, {"INBOX_RETRY_JITTER": "7"}, "retry.jitter must be between 0 and 1"),
        (ConsumerSettings, {"INBOX_UNKNOWN_TYPES": "job.*=fail"}, "which needs whole types"),
        (DatabaseSettings, {"INBOX_DATABASE_TLS_CA": "ca.pem"}, "tls_ca is set but tls is not"),
        (RabbitMQSettings, {"INBOX_RABBITMQ_HEARTBEAT": "0"}, "heartbeat must be between 1 and 3600"),
        (RabbitMQSettings, {"INBOX_RABBITMQ_TLS_KEY": "key.pem"}, "belong together"),
        (RabbitMQSettings, {"INBOX_RABBITMQ_TLS": "no", "INBOX_RABBITMQ_TLS_CA": "x"}, "tls is off, which contradicts"),
        (SQLiteQueueSettings, {"INBOX_SQLITE_QUEUE_LEASE": "0"}, "lease must be more than 0 seconds"),
    ],
)
def test_what_the_settings_refuse_names_the_variable_too(
    kind: type[EnvironmentSettings], given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as refused:
        kind.from_env()
    assert said in str(refused.value)
    assert str(refused.value).endswith(f"; the environment sets {', '.join(given)}")


def test_only_the_variable_that_is_to_blame_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_CONCURRENCY", "4")
    monkeypatch.setenv("INBOX_DEADLINE", "-1")
    with pytest.raises(ConfigurationError, match=r"environment sets INBOX_DEADLINE$"):
        ConsumerSettings.from_env()
    monkeypatch.setenv("INBOX_DEADLINE", "1")
    with pytest.raises(
        ConfigurationError, match=r"whole number, not a str; the environment sets INBOX_CONCURRENCY, IN"
    ):
        ConsumerSettings.from_env(prefetch="9")  # nothing names one, so all are named that might be


def test_an_error_of_the_code_alone_is_left_as_it_is() -> None:
    with pytest.raises(ConfigurationError, match=r"^deadline must be more than 0 seconds, and a number of them$"):
        ConsumerSettings.from_env(deadline=0)


def test_what_is_set_wins_over_defaults_and_they_over_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RetryRule(ValueError, max_attempts=1)
    policy = RetryPolicy(max_attempts=3, rules=(rule,))
    monkeypatch.setenv("INBOX_CONCURRENCY", "2")
    monkeypatch.setenv("INBOX_RETRY_DELAYS", "5")
    settings = ConsumerSettings.from_env(concurrency=4, deadline=7.0, retry=policy)
    assert settings == ConsumerSettings(
        concurrency=2, deadline=7.0, retry=RetryPolicy(max_attempts=3, delays=(5.0,), rules=(rule,))
    )


def test_certificates_are_laid_over_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = TlsSettings(certificate="mine.pem", key="mine.key")
    monkeypatch.setenv("INBOX_RABBITMQ_TLS_CA", "ca.pem")
    assert RabbitMQSettings.from_env(tls=tls).tls == TlsSettings("ca.pem", "mine.pem", "mine.key")
    monkeypatch.setenv("INBOX_RABBITMQ_TLS", "true")
    assert RabbitMQSettings.from_env(tls=tls).tls == TlsSettings("ca.pem", "mine.pem", "mine.key")


def test_certificates_of_the_code_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_RABBITMQ_TLS", "false")
    assert RabbitMQSettings.from_env(tls=TlsSettings()).tls is None


def test_another_prefix_is_another_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_CONCURRENCY", "3")
    monkeypatch.setenv("INBOX_CONCURRENCY", "2")
    assert ConsumerSettings.from_env("BILLING_").concurrency == 3
    with pytest.raises(ConfigurationError, match="prefix"):
        ConsumerSettings.from_env("")


def test_rules_are_for_code_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_RETRY_RULES", "hunter2")
    with pytest.raises(
        ConfigurationError, match=r"^INBOX_RETRY_RULES is set, but retry\.rules can be given in code only$"
    ):
        ConsumerSettings.from_env()


@pytest.mark.parametrize(
    ("kind", "slip", "meant"),
    [
        (ConsumerSettings, "INBOX_CONCURENCY", "INBOX_CONCURRENCY"),
        (ConsumerSettings, "INBOX_RETRY_MAX_ATTEMPT", "INBOX_RETRY_MAX_ATTEMPTS"),
        (ConsumerSettings, "INBOX_MAX_ATTEMPTS", "INBOX_RETRY_MAX_ATTEMPTS"),
        (ConsumerSettings, "INBOX_DEADLINES", "INBOX_DEADLINE"),
        (ConsumerSettings, "inbox_deadline", "INBOX_DEADLINE"),
        (ConsumerSettings, "INBOX_UNKNOWNTYPES", "INBOX_UNKNOWN_TYPES"),
        (DatabaseSettings, "INBOX_DATABASE_LOCKWAIT", "INBOX_DATABASE_LOCK_WAIT"),
        (DatabaseSettings, "INBOX_LOCK_WAIT", "INBOX_DATABASE_LOCK_WAIT"),
        (DatabaseSettings, "INBOX_DATABSE_LOCK_WAIT", "INBOX_DATABASE_LOCK_WAIT"),
        (RabbitMQSettings, "INBOX_HEARTBEAT", "INBOX_RABBITMQ_HEARTBEAT"),
        (RabbitMQSettings, "INBOX_RABBIT_HEARTBEAT", "INBOX_RABBITMQ_HEARTBEAT"),
        (RabbitMQSettings, "INBOX_RABBITMQ_TLSCA", "INBOX_RABBITMQ_TLS_CA"),
        (SQLiteQueueSettings, "INBOX_SQLITE_QUEUE_LEASES", "INBOX_SQLITE_QUEUE_LEASE"),
        (OrbitSettings, "INBOX_ORBIT_CAPACITYS", "INBOX_ORBIT_CAPACITY"),
        (OrbitSettings, "INBOX_UNIT_DEADLINE", "INBOX_ORBIT_UNIT_DEADLINE"),
    ],
)
def test_a_slip_is_reported_and_not_ignored(
    kind: type[EnvironmentSettings], slip: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(slip, "hunter2")
    with pytest.raises(ConfigurationError) as refused:
        kind.from_env()
    assert str(refused.value) == f"{slip} is no setting: did you mean {meant}?"


def test_all_slips_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_DEADLIN", "1")
    monkeypatch.setenv("INBOX_IDENTITI", "id")
    with pytest.raises(ConfigurationError, match=r"INBOX_DEADLINE\? INBOX_IDENTITI is no setting"):
        ConsumerSettings.from_env()


def other_names() -> Iterator[str]:
    """Every name that begins with the prefix and that somebody uses: settings, commands, tests, documents."""
    for folder in ("inbox", "tests", "examples", "docs"):
        for file in sorted([*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]):
            if file != Path(__file__):
                yield from re.findall(r"\bINBOX_[A-Z0-9]+(?:_[A-Z0-9]+)*\b(?! is no setting)", file.read_text())
    for kind in CLASSES:
        yield from (variable.name for variable in variables(kind, "INBOX_" + kind.environment_area))
    yield from ("INBOX_BROKER", "INBOX_RABBITMQ_URL", "INBOX_AMQP_URL", "INBOX_QUEUE", "INBOX_WORKERS", "INBOX_HOST")


@pytest.mark.parametrize("kind", CLASSES)
def test_no_name_that_is_in_use_is_taken_for_a_slip(
    kind: type[EnvironmentSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {variable.name for variable in variables(kind, "INBOX_" + kind.environment_area)}
    names = set(other_names()) - own
    assert len(names) > 50
    for name in names:
        monkeypatch.setenv(name, "x")
    assert kind.from_env() == kind()


def test_the_areas_are_those_of_the_classes() -> None:
    assert sorted(kind.environment_area for kind in CLASSES if kind.environment_area) == sorted(environment._AREAS)


def test_two_transports_may_have_settings_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_ORBIT_RECONNECT_MAX_DELAY", "3")
    monkeypatch.setenv("INBOX_RABBITMQ_RECONNECT_MAX_DELAY", "4")
    assert OrbitSettings.from_env().reconnect_max_delay == 3
    assert RabbitMQSettings.from_env().reconnect_max_delay == 4


def test_whatever_else_a_class_may_hold_is_for_code_only(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Odd(EnvironmentSettings):
        environment_area: ClassVar[str] = "ODD_"
        needed: TlsSettings
        either: int | str | None = None
        numbers: dict[str, int] | None = None
        paths: tuple[Path, ...] = ()
        classes: Any = None

    names = [variable.path for variable in variables(Odd, "") if variable.form is None]
    assert names == ["either", "numbers", "paths", "classes"]
    monkeypatch.setenv("INBOX_ODD_NEEDED_CA", "ca.pem")
    assert is_dataclass(Odd)
    assert Odd.from_env() == Odd(TlsSettings("ca.pem"))
