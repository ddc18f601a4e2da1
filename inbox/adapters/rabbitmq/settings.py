"""What a RabbitMQ transport is told: where the broker is, which queue, and how to behave when it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal
from urllib.parse import unquote, urlsplit

from inbox.config import EnvironmentSettings, require
from inbox.errors import ConfigurationError

ExchangeKind = Literal["topic", "direct", "fanout", "headers"]
QueueKind = Literal["quorum", "classic"]

#: AMQP 0-9-1 carries names and routing keys as short strings: a length octet, then at most 255 octets.
SHORT_STRING_OCTETS = 255

#: AMQP 0-9-1 counts a prefetch in 16 bits (basic.qos).
MOST_PREFETCH = 65535

LONGEST_HEARTBEAT = 3600

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of the consumed queue.

    Attributes:
        exchange: an exchange that exists, unless `declare` is set.
        routing_key: pattern under which events are wanted; `*` is one word, `#` any number of them.
        declare: kind of a durable exchange to declare first. None leaves the exchange to its owner,
            which is right for every exchange that is not yours: declaring it with other arguments
            than the owner's closes the channel (AMQP 0-9-1, exchange.declare, 406).
    """

    exchange: str
    routing_key: str = ""
    declare: ExchangeKind | None = None

    def __post_init__(self) -> None:
        require(
            bool(self.exchange),
            "a binding needs the name of an exchange: the default exchange cannot be bound, it already routes "
            "every queue's own name to it",
        )
        _require_short("the exchange of a binding", self.exchange)
        _require_short("the routing key of a binding", self.routing_key)
        require(
            self.declare in (None, "topic", "direct", "fanout", "headers"),
            "declare of a binding must be None, 'topic', 'direct', 'fanout' or 'headers'",
        )


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How to trust the broker, and how to be known to it. Verification cannot be switched off.

    Attributes:
        ca: file with the certificate authorities to trust (PEM); None takes the system's.
        certificate: file with a client certificate (PEM) for brokers that ask for one.
        key: file with its private key (PEM, without a passphrase).
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        require(
            (self.certificate is None) == (self.key is None),
            "a client certificate and its key belong together: set both tls.certificate and tls.key, or neither",
        )


@dataclass(frozen=True, slots=True)
class RabbitMQSettings(EnvironmentSettings):
    """How the transport behaves.

    Attributes:
        declare: declare the queues and bindings, so that a new service needs no preparation. False declares nothing
            and checks instead that the queue is there and drops nothing.
        queue_type: `quorum`, which is replicated and survives the loss of a node, or `classic`.
        dead_letter_exchange: where the broker puts what it gives up; `""` is the default exchange,
            which needs no binding. Declared as a durable direct exchange when named and `declare`.
        dead_letter_queue: queue of dead letters, consumed too, into quarantine. None is
            `<queue>.dead` when `declare`, and otherwise none is consumed.
        retry_queues: keep copies of events that wait for their next attempt in queues beside the consumed one,
            `<queue>.retry.<time>`, one for each delay: declared with `declare`, and otherwise checked. None is as
            `declare`. False makes no copies: such deliveries are held in hand, for a while.
        dead_letters_by_policy: you vouch that a policy gives the queue a dead-letter exchange. The
            broker shows the arguments of a queue over AMQP, but never its policies.
        tls: certificates; setting it asks for TLS as an `amqps://` address does.
        heartbeat: whole seconds; a silent connection is given up after three of them. The broker's own
            advice is 5 to 20 (rabbitmq.com/docs/heartbeats).
        connect_timeout: seconds for connecting, logging in and preparing the topology; several round trips to a broker
            that may just have started.
        reconnect_min_delay: seconds before the first attempt after a loss; each further one waits
            longer, with jitter. Short, for most losses are of one connection, not of the broker.
        reconnect_max_delay: seconds that no wait between attempts exceeds: an attempt costs a broker little, and
            nobody wants to wait much longer for events when it is back.
        patience: seconds without the broker after which `run` gives up; None never does, for a worker that waits
            loses nothing.
        start_patience: seconds that `open` waits for a broker that is not there yet; 0 waits for none, so that a
            wrong address shows at once.
        close_timeout: seconds for an orderly good-bye; then the socket is simply closed, which loses nothing.
        confirm_timeout: seconds a publisher waits for the broker's confirmation. A copy for later that is not
            confirmed in that time, as while the broker is in alarm, is held in hand instead.
        coalesce_acks: acknowledge runs of settled deliveries by one frame, which spares the broker most of its work
            for them.
        ack_linger: seconds an acknowledgement may wait for company; next to nothing beside a unit of work, so that
            few are delivered twice after a kill.
        connection_name: shown in the broker's own tools; no secrets.
    """

    environment_area: ClassVar[str] = "RABBITMQ_"

    declare: bool = True
    queue_type: QueueKind = "quorum"
    dead_letter_exchange: str = ""
    dead_letter_queue: str | None = None
    retry_queues: bool | None = None
    dead_letters_by_policy: bool = False
    tls: TlsSettings | None = None
    heartbeat: int = 10
    connect_timeout: float = 15.0
    reconnect_min_delay: float = 0.25
    reconnect_max_delay: float = 10.0
    patience: float | None = None
    start_patience: float = 0.0
    close_timeout: float = 5.0
    confirm_timeout: float = 10.0
    coalesce_acks: bool = True
    ack_linger: float = 0.005
    connection_name: str = "inbox"

    def __post_init__(self) -> None:
        require(self.queue_type in ("quorum", "classic"), "queue_type must be 'quorum' or 'classic'")
        require(
            1 <= self.heartbeat <= LONGEST_HEARTBEAT,
            "heartbeat must be between 1 and 3600 whole seconds: without one a dead link is never noticed",
        )
        require(self.connect_timeout > 0, "connect_timeout must be more than 0 seconds")
        require(
            0 < self.reconnect_min_delay <= self.reconnect_max_delay,
            "reconnect_min_delay must be more than 0 seconds and at most reconnect_max_delay",
        )
        require(self.patience is None or self.patience > 0, "patience must be more than 0 seconds, or None")
        require(self.start_patience >= 0, "start_patience must not be negative")
        require(self.close_timeout > 0, "close_timeout must be more than 0 seconds")
        require(self.confirm_timeout > 0, "confirm_timeout must be more than 0 seconds")
        require(0 <= self.ack_linger <= 1, "ack_linger must be between 0 and 1 second")
        _require_short("dead_letter_exchange", self.dead_letter_exchange)
        _require_short("dead_letter_queue", self.dead_letter_queue or "")

    @property
    def has_retry_queues(self) -> bool:
        """Whether copies are kept."""
        return self.declare if self.retry_queues is None else self.retry_queues


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where the broker is and who logs in. Only `url` holds the secret, and nothing shows it.

    Attributes:
        url: the address as given, credentials included, its scheme settled.
        host, port, vhost: the same in parts, for people.
        is_tls: whether the connection must be encrypted.
    """

    url: str
    host: str
    port: int
    vhost: str
    is_tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, virtual host {self.vhost!r}"

    def __repr__(self) -> str:
        return f"<Address {self}>"


def parse_address(url: str, tls: TlsSettings | None = None) -> Address:
    """Read `amqp[s]://user:password@host:port/vhost`.

    Args:
        url: the address. A `/` in the virtual host is written `%2F`; no path is the host `/`.
        tls: set where TLS is asked for whatever the scheme says.

    Raises:
        ConfigurationError: it is no such address, or it carries parameters: those of the client
            library could switch certificate checks off, so settings take their place. The message
            never shows the address, for it holds the password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError("the broker's address is no URL: amqp://user:password@host:5672/vhost") from None
    require(parts.scheme in DEFAULT_PORTS, "the broker's address must start with amqp:// or amqps://")
    require(bool(parts.hostname), "the broker's address names no host: amqp://user:password@host:5672/vhost")
    require(
        not parts.query and not parts.fragment,
        "the broker's address carries parameters: use RabbitMQSettings (heartbeat, tls, connection_name) instead",
    )
    is_tls = parts.scheme == "amqps" or tls is not None
    scheme = "amqps" if is_tls else "amqp"
    vhost = unquote(parts.path.removeprefix("/")) or "/"
    return Address(
        parts._replace(scheme=scheme).geturl(), parts.hostname or "", port or DEFAULT_PORTS[scheme], vhost, is_tls
    )


def check_queue_name(name: str, *, spare: int = len(".dead")) -> str:
    """The queue's name, if the broker takes it.

    Args:
        name: of the queue.
        spare: octets that the names of other queues add to it.

    Raises:
        ConfigurationError: empty (the broker would invent a name and lose it), too long, or with
            the prefix that AMQP 0-9-1 reserves for the broker.
    """
    require(bool(name), "the queue needs a name: with none the broker makes up a temporary one")
    require(not name.startswith("amq."), "the queue's name must not start with 'amq.', which AMQP keeps for the broker")
    _require_short("the queue's name", name, spare=spare)
    return name


def _require_short(what: str, text: str, *, spare: int = 0) -> None:
    octets = len(text.encode())
    limit = SHORT_STRING_OCTETS - spare
    require(octets <= limit, f"{what} has {octets} octets, at most {limit} are possible (AMQP 0-9-1 short string)")
