"""Settings: small frozen values, checked when they are made."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

from inbox.core.batching import MOST_IN_BATCH, Batch
from inbox.core.environment import read_settings
from inbox.core.lease import LeaseTerms
from inbox.core.policy import LONGEST_WAIT, RetryPolicy, RetryRule
from inbox.core.records import CONSUMER_NAME_OCTETS, DEFAULT_FINGERPRINT, FingerprintPart, Identity
from inbox.core.retention import why_too_short
from inbox.errors import ConfigurationError

#: What becomes of an event whose type has no handler.
Unknown = Literal["quarantine", "ignore", "fail"]

_MOST_UNITS = 1000
_MOST_PREFETCH = 65535  # basic.qos carries it in 16 bits (AMQP 0-9-1, 1.6.3)
_MOST_LOCK_WAIT = 600


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError(message)` unless `condition` holds."""
    if not condition:
        raise ConfigurationError(message)


def _require_seconds(settings: object, *names: str, prefix: str = "") -> None:
    for name in names:
        given = getattr(settings, name)
        require(_is_seconds(given), f"{prefix}{name} must be more than 0 seconds, and a number of them")


def _is_seconds(given: object) -> bool:
    return isinstance(given, int | float) and 0 < given < math.inf


def _require_whole(settings: object, *names: str, prefix: str = "") -> None:
    """What comes from the environment is a text until `int()` has read it."""
    for name in names:
        given = getattr(settings, name)
        require(isinstance(given, int), f"{prefix}{name} must be a whole number, not a {type(given).__name__}")


def env(name: str, default: str | None = None) -> str:
    """A setting from the environment.

    Args:
        name: of the variable.
        default: taken where it is not set; None demands it.

    Raises:
        ConfigurationError: it is not set, or empty.
    """
    value = os.environ.get(name) or default
    if value is None:
        raise ConfigurationError(f"set {name} in the environment")
    return value


class EnvironmentSettings:
    """Mixin for settings that environment variables can give; `docs/reference/settings.md` lists them.

    Attributes:
        environment_area: what the names of their variables begin with, after the prefix.
    """

    __slots__ = ()
    environment_area: ClassVar[str] = ""

    @classmethod
    def from_env(cls, prefix: str = "INBOX_", **defaults: Any) -> Self:
        """The settings that the environment describes.

            Inbox("billing", store=MySQL(url, DatabaseSettings.from_env()), settings=ConsumerSettings.from_env())

        Nothing reads the environment by itself: settings that are made without this are what the code says. A variable
        that is set wins over `defaults`; one that is empty counts as not set. `none` is None, a list has commas, and
        what is true may be written `true`, `yes`, `on` or `1`.

        Args:
            prefix: what the names begin with; another one lets two consumers of one process differ.
            defaults: fields as the class takes them, for what the environment leaves open.

        Raises:
            ConfigurationError: a name that begins with the prefix is almost that of a setting; a text cannot be read;
                or the settings contradict each other. The message names the variable and what is right, never what is
                in it.
        """
        return read_settings(cls, os.environ, prefix=prefix, area=cls.environment_area, defaults=defaults)


@dataclass(frozen=True, slots=True)
class ConsumerSettings(EnvironmentSettings):
    """How one consumer works.

    Attributes:
        concurrency: units of work at once in one process. It holds one database connection for each, one
            beside them for attempts and quarantine, and short ones after trouble. With 8, a dozen processes fit into
            the 151 connections that MySQL allows by itself.
        prefetch: deliveries the transport may have in hand; None is four times the concurrency, so that units need
            not wait for the broker, and little is held that another worker could take.
        deadline: seconds one unit may take, handler included. Far longer than a unit should, for its locks make others
            wait, and far shorter than a broker waits for an acknowledgement (RabbitMQ: `consumer_timeout`, 30 minutes).
        cancel_patience: seconds a cancelled handler gets to come back before it is reported as stuck; one that cleans
            up behind itself is given the time for a statement or two.
        shutdown_patience: seconds a stopping worker gives its running units; as long as the deadline's default, so
            that whatever runs can end by itself.
        report_interval: seconds between two reports of the worker, which `inbox status` shows: one small statement
            each. None makes none.
        retry: what happens to events that fail.
        unknown_types: what becomes of event types that have no handler, by the type or a prefix that ends in `*`;
            the longest that fits holds. `quarantine`, which is also for what is not named, because a type that was
            forgotten must not be lost; `ignore`: the inbox row is written, no handler runs, and it is counted as
            ignored; `fail`, for whole types: the worker does not start.
        identity: what makes an event the same event: its `id`, which most producers make unique, or `source+id`, which
            is all that CloudEvents promises. Never change it: every event known so far would be new.
        fingerprint: what may not change under one identity, or the event is refused as `identity-conflict`; None
            compares nothing. `subject` is left out unless named, for producers derive it from the rest; `sequence` is
            the extension attribute of that name, for producers that number their events.
        retention: seconds for which this consumer's rows are kept: of processed events, attempts, decided quarantine.
            The worker deletes what is older; None leaves that to `inbox prune`. An event that comes again later is a
            new one, so it must be at least `retry.horizon(deadline)`, and should be longer than any queue, outbox or
            backup can bring an event back.
        retention_interval: seconds between two clean-ups of one worker; often enough that each has little to delete.
        batch: let deliveries share a transaction (`docs/performance.md`, "Batches"); None gives each its own. With it,
            `concurrency` is the number of batches at once, and a prefetch of None is four times `batch.max`, or four
            times the concurrency where that is more.
    """

    concurrency: int = 8
    prefetch: int | None = None
    deadline: float = 30.0
    cancel_patience: float = 5.0
    shutdown_patience: float = 30.0
    report_interval: float | None = 10.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    unknown_types: Mapping[str, Unknown] = field(default_factory=dict)
    identity: Identity = "id"
    fingerprint: tuple[FingerprintPart, ...] | None = DEFAULT_FINGERPRINT
    retention: float | None = None
    retention_interval: float = 3600.0
    batch: Batch | None = None

    def __post_init__(self) -> None:
        _require_whole(self, "concurrency", *(() if self.prefetch is None else ("prefetch",)))
        require(1 <= self.concurrency <= _MOST_UNITS, f"concurrency must be between 1 and {_MOST_UNITS}")
        require(
            self.prefetch is None or self.concurrency <= self.prefetch <= _MOST_PREFETCH,
            f"prefetch must be at least the concurrency and at most {_MOST_PREFETCH}",
        )
        _require_seconds(self, "deadline", "cancel_patience", "shutdown_patience")
        if self.report_interval is not None:
            _require_seconds(self, "report_interval")
        _check_retry(self.retry)
        _check_unknown_types(self.unknown_types)
        require(self.identity in ("id", "source+id"), "identity must be 'id' or 'source+id'")
        unknown = set(self.fingerprint or ()) - set(get_args(FingerprintPart))
        require(not unknown, f"fingerprint may cover {', '.join(get_args(FingerprintPart))}, not {sorted(unknown)}")
        _require_seconds(self, "retention_interval")
        if self.retention is not None:
            _require_seconds(self, "retention")
            _check_retention(self.retention, self.retry.horizon(self.deadline))
        if self.batch is not None:
            _check_batch(self.batch)

    @property
    def effective_prefetch(self) -> int:
        """The prefetch that is used."""
        most = self.concurrency if self.batch is None else max(self.concurrency, self.batch.max)
        return self.prefetch if self.prefetch is not None else min(most * 4, _MOST_PREFETCH)

    def over_lease(self, terms: LeaseTerms) -> ConsumerSettings:
        """These settings as far as a peer allows them that hands deliveries out for a while.

        A unit ends before its lease does and a stop when the transport has to be done; a fingerprint that was left at
        the default is the transport's.
        """
        is_default = self.fingerprint == DEFAULT_FINGERPRINT and terms.fingerprint is not None
        return replace(
            self,
            deadline=min(self.deadline, terms.unit_deadline),
            shutdown_patience=min(self.shutdown_patience, terms.shutdown_timeout),
            fingerprint=terms.fingerprint if is_default else self.fingerprint,
        )


def _check_retention(window: float, horizon: float) -> None:
    problem = why_too_short(window, horizon)
    require(
        problem is None,
        f"retention={problem}: raise it, or lower retry.delays, retry.max_attempts, retry.max_releases or deadline",
    )


def _check_batch(batch: Batch) -> None:
    _require_whole(batch, "max", prefix="batch.")
    require(2 <= batch.max <= MOST_IN_BATCH, f"batch.max must be between 2 and {MOST_IN_BATCH}")  # noqa: PLR2004 - fewer are no batch
    require(
        batch.wait_ms == 0 or _is_seconds(batch.wait_ms),
        "batch.wait_ms must be a number of milliseconds, not negative",
    )


def _check_retry(policy: RetryPolicy) -> None:
    _require_whole(policy, "max_attempts", "immediate", "max_releases", prefix="retry.")
    _require_seconds(policy, "first_delay", "max_delay", "max_hold", prefix="retry.")
    for name, least in {"max_attempts": 1, "immediate": 0, "max_releases": 0}.items():
        require(getattr(policy, name) >= least, f"retry.{name} must be at least {least}")
    if policy.give_up_after is not None:
        _require_seconds(policy, "give_up_after", prefix="retry.")
    require(0 <= policy.jitter <= 1, "retry.jitter must be between 0 and 1: it is a share of the delay")
    _check_delays("retry.delays", policy.delays)
    rules: object = policy.rules
    require(
        isinstance(rules, tuple) and all(isinstance(rule, RetryRule) for rule in rules),
        "retry.rules must be a tuple of RetryRule(...)",
    )
    for number, rule in enumerate(policy.rules):
        _check_rule(f"retry.rules[{number}]", rule)


def _check_rule(name: str, rule: RetryRule) -> None:
    errors: tuple[object, ...] = rule.errors if isinstance(rule.errors, tuple) else (rule.errors,)
    require(
        all(isinstance(error, type) and issubclass(error, BaseException) for error in errors),
        f"{name}.errors must be an exception class, or a tuple of them",
    )
    require(
        not isinstance(rule.event_types, str),
        f"{name}.event_types must be a tuple of types, not one text: ({rule.event_types!r},)",
    )
    if rule.max_attempts is not None:
        _require_whole(rule, "max_attempts", prefix=f"{name}.")
        require(rule.max_attempts >= 1, f"{name}.max_attempts must be at least 1")
    if rule.delays is not None:
        _check_delays(f"{name}.delays", rule.delays)


def _check_delays(name: str, delays: object) -> None:
    require(
        isinstance(delays, tuple)
        and len(delays) > 0
        and all(isinstance(delay, int | float) and 0 <= delay <= LONGEST_WAIT for delay in delays),
        f"{name} must be a tuple of seconds, each between 0 and 30 days",
    )


def _check_unknown_types(policies: Mapping[str, Unknown]) -> None:
    for kind, what in policies.items():
        require(
            what in get_args(Unknown),
            f"unknown_types[{kind!r}] must be 'quarantine', 'ignore' or 'fail'",
        )
        require(
            what != "fail" or not kind.endswith("*"),
            f"unknown_types[{kind!r}] is 'fail', which needs whole types: nobody knows what a pattern will meet",
        )


def check_consumer_name(name: str) -> str:
    """The consumer's name, if it can be stored.

    Raises:
        ConfigurationError: empty, or longer than its key column.
    """
    require(bool(name), "a consumer needs a name: duplicates are known under it")
    require(
        len(name.encode()) <= CONSUMER_NAME_OCTETS,
        f"the consumer name has {len(name.encode())} octets, at most {CONSUMER_NAME_OCTETS} are stored",
    )
    return name


@dataclass(frozen=True, slots=True)
class DatabaseSettings(EnvironmentSettings):
    """How the store uses its database.

    Attributes:
        lock_wait: whole seconds a statement waits for a row lock; holds for the handler's statements too. The server's
            own 50 would outlast the deadline of a unit.
        connect_timeout: seconds to connect and log in; what MySQL itself gives a client.
        start_patience: seconds that a start waits for a database that is not there yet; 0 waits for none, so that a
            wrong address shows at once.
        patience: seconds that a worker waits for a database that takes no writes, before it ends; None never does, for
            a worker that waits loses nothing, and one that ends has to be started again.
        allow_call: let handlers `CALL` stored procedures; costs two packets a unit. Off, for a procedure can commit
            where no guard sees it.
        pipelined_duplicates: read a duplicate's fingerprint and roll back in one round trip. Off
            for proxies that cannot take two commands at once.
        tls: require an encrypted connection. Off, for a database on the same machine needs none; a server without TLS
            is refused where it is on.
        tls_ca: file with the certificate authority to trust; None takes the system's.
        quarantine_rows: most rows that one consumer may have in quarantine. A full one pauses the intake: enough for
            a bad day, and few enough that people can still look at them.
        quarantine_bytes: most octets of them; 1 GiB, which no disk should be surprised by.
    """

    environment_area: ClassVar[str] = "DATABASE_"

    lock_wait: int = 5
    connect_timeout: float = 10.0
    start_patience: float = 0.0
    patience: float | None = None
    allow_call: bool = False
    pipelined_duplicates: bool = True
    tls: bool = False
    tls_ca: str | None = None
    quarantine_rows: int = 100_000
    quarantine_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        _require_whole(self, "lock_wait", "quarantine_rows", "quarantine_bytes")
        require(
            1 <= self.lock_wait <= _MOST_LOCK_WAIT, f"lock_wait must be between 1 and {_MOST_LOCK_WAIT} whole seconds"
        )
        _require_seconds(self, "connect_timeout")
        require(
            self.start_patience == 0 or _is_seconds(self.start_patience),
            "start_patience must be a number of seconds, not negative",
        )
        if self.patience is not None:
            _require_seconds(self, "patience")
        require(self.tls or self.tls_ca is None, "tls_ca is set but tls is not: set tls=True to require encryption")
        require(self.quarantine_rows >= 1, "quarantine_rows must be at least 1")
        require(self.quarantine_bytes >= 1, "quarantine_bytes must be at least 1")
