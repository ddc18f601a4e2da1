"""Settings are checked when they are made, and no secret leaves them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from inbox.adapters.rabbitmq import Binding, Publisher, RabbitMQ, RabbitMQSettings, TlsSettings
from inbox.adapters.rabbitmq.settings import parse_address
from inbox.adapters.rabbitmq.tls import make_context
from inbox.core.delivery import Delivery
from inbox.errors import ConfigurationError

URL = "amqp://someone:hunter2@broker.example:5673/orders%2Feu"


def test_an_address_is_read() -> None:
    address = parse_address(URL)
    assert (address.host, address.port, address.vhost, address.is_tls) == ("broker.example", 5673, "orders/eu", False)
    assert address.url == URL


@pytest.mark.parametrize(
    ("url", "port", "vhost"),
    [("amqp://h", 5672, "/"), ("amqp://h/", 5672, "/"), ("amqps://h/%2F", 5671, "/"), ("amqp://[::1]:7/v", 7, "v")],
)
def test_what_an_address_leaves_out_has_its_default(url: str, port: int, vhost: str) -> None:
    address = parse_address(url)
    assert (address.port, address.vhost) == (port, vhost)


def test_certificates_ask_for_tls_whatever_the_scheme_says() -> None:
    address = parse_address("amqp://u:p@h/v", TlsSettings())
    assert address.is_tls
    assert address.url.startswith("amqps://")
    assert address.port == 5671


@pytest.mark.parametrize(
    "url",
    [
        "http://u:hunter2@h/",
        "amqp://",
        "amqp://u:hunter2@/v",
        "u:hunter2@h",
        "amqp://u:hunter2@h:port/",
        "amqp://u:hunter2@h:99999/",
        "amqps://u:hunter2@h/?no_verify_ssl=1",
        "amqps://u:hunter2@h/?cafile=x",
        "amqp://u:hunter2@h/?heartbeat=0",
        "amqp://u:hunter2@[::1/",
        "",
    ],
)
def test_a_bad_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RabbitMQ(url, "orders")
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_no_secret_is_in_any_repr() -> None:
    transport = RabbitMQ(URL, "orders")
    for shown in (
        repr(transport),
        str(transport),
        repr(parse_address(URL)),
        repr(Publisher(URL)),
        repr(transport.topology),
    ):
        assert "hunter2" not in shown
        assert "someone" not in shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: RabbitMQSettings(queue_type=cast("Any", "mirrored")),
        lambda: RabbitMQSettings(heartbeat=0),
        lambda: RabbitMQSettings(connect_timeout=0),
        lambda: RabbitMQSettings(reconnect_min_delay=0),
        lambda: RabbitMQSettings(reconnect_min_delay=5, reconnect_max_delay=1),
        lambda: RabbitMQSettings(patience=0),
        lambda: RabbitMQSettings(start_patience=-1),
        lambda: RabbitMQSettings(close_timeout=0),
        lambda: RabbitMQSettings(confirm_timeout=0),
        lambda: RabbitMQSettings(ack_linger=2),
        lambda: RabbitMQSettings(dead_letter_queue="q" * 256),
        lambda: TlsSettings(certificate="client.pem"),
        lambda: TlsSettings(key="client.key"),
        lambda: Binding(""),
        lambda: Binding("e", "k" * 256),
        lambda: Binding("e", declare=cast("Any", "x-odd")),
        lambda: RabbitMQ(URL, ""),
        lambda: RabbitMQ(URL, "amq.mine"),
        lambda: RabbitMQ(URL, "q" * 251),
        lambda: RabbitMQ(URL, "orders", [Binding("e")], RabbitMQSettings(declare=False)),
        lambda: RabbitMQ(URL, "orders", settings=RabbitMQSettings(dead_letter_queue="orders")),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"\w+ .*\w+"):
        make()


@pytest.mark.parametrize("prefetch", [0, 65536])
async def test_a_prefetch_that_amqp_cannot_count_is_refused(prefetch: int) -> None:
    with pytest.raises(ConfigurationError, match="65535"):
        await RabbitMQ(URL, "orders").open(prefetch=prefetch)


def test_certificate_files_that_are_not_there_are_named_by_their_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"tls\.ca "):
        make_context(TlsSettings(ca="/nowhere/ca.pem"))
    with pytest.raises(ConfigurationError, match=r"tls\.certificate "):
        make_context(TlsSettings(certificate="/nowhere/c.pem", key="/nowhere/k.pem"))


async def test_a_delivery_of_another_transport_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="RabbitMQ"):
        await RabbitMQ(URL, "orders").acknowledge(Delivery(b"", {}))
