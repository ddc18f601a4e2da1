"""TLS asked for is TLS had, or the start stops and says why."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from inbox.adapters.rabbitmq import Publisher, RabbitMQ, RabbitMQSettings, TlsSettings
from inbox.errors import TlsError
from inbox.testing.conformance.transport import Hand, consuming
from tests.pairs import Pair

pytestmark = pytest.mark.needs_tls


def queue_of(pair: Pair) -> str:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    return queue


async def refusal(transport: RabbitMQ) -> str:
    with pytest.raises(TlsError) as refused:
        await transport.open(prefetch=1)
    await transport.close()
    return str(refused.value)


@pytest.mark.parametrize("scheme", ["amqps", "amqp"])
async def test_events_travel_over_tls(pair: Pair, scheme: str) -> None:
    """Certificates alone ask for TLS too, whatever the scheme says."""
    settings = RabbitMQSettings(tls=TlsSettings(ca=str(pair.tls.authority)))
    url = urlsplit(pair.tls.dsn)._replace(scheme=scheme).geturl()
    transport, hand = RabbitMQ(url, queue_of(pair), settings=settings), Hand()
    async with consuming(transport, hand), Publisher(url, settings) as publisher:
        await publisher.publish(b"secret", exchange="", routing_key=transport.topology.queue)
        (delivery,) = await hand.wait(1)
        assert delivery.body == b"secret"
        assert await transport.acknowledge(delivery)


async def test_an_unknown_authority_is_refused(pair: Pair) -> None:
    told = await refusal(RabbitMQ(pair.tls.dsn, queue_of(pair)))
    assert "tls.ca" in told


async def test_another_authority_is_refused(pair: Pair, tmp_path: Path) -> None:
    others, _ = self_signed(tmp_path, x509.DNSName("localhost"))
    settings = RabbitMQSettings(tls=TlsSettings(ca=str(others)))
    told = await refusal(RabbitMQ(pair.tls.dsn, queue_of(pair), settings=settings))
    assert "tls.ca" in told


async def test_a_trusted_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, x509.DNSName("other.example"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        settings = RabbitMQSettings(tls=TlsSettings(ca=str(certificate)))
        told = await refusal(RabbitMQ(f"amqps://u:p@127.0.0.1:{port}/", "orders", settings=settings))
    assert "host name" in told


@pytest.mark.parametrize("asked", ["scheme", "settings"])
async def test_tls_to_a_plain_port_is_refused_with_the_fix(pair: Pair, asked: str) -> None:
    queue = queue_of(pair)
    if asked == "scheme":
        told = await refusal(RabbitMQ(urlsplit(pair.amqp_url)._replace(scheme="amqps").geturl(), queue))
    else:
        told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=RabbitMQSettings(tls=TlsSettings())))
    assert "5671" in told
    assert urlsplit(pair.amqp_url).password not in told.split()


def self_signed(folder: Path, host: x509.GeneralName) -> tuple[Path, Path]:
    """PEM files of a certificate that is its own authority, and of its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
