"""TLS that is really TLS: the context is ours, so nothing in an address can weaken it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from inbox.errors import ConfigurationError, TlsError

if TYPE_CHECKING:
    from inbox.adapters.rabbitmq.settings import Address, TlsSettings


def make_context(settings: TlsSettings | None) -> ssl.SSLContext:
    """A client's context that verifies certificate and host name, TLS 1.2 or newer.

    Reads the files, so it is called when the transport opens, not when it is made.

    Args:
        settings: the files; None trusts the system's authorities.

    Raises:
        ConfigurationError: a file is missing or holds no certificate or key.
    """
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ca if settings else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("tls.ca cannot be read: it must name a PEM file of certificate authorities") from error
    # RFC 8996 deprecates what is older.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings is not None and settings.certificate is not None:
        try:
            # An empty password instead of none: OpenSSL would ask for one on the terminal and wait.
            context.load_cert_chain(settings.certificate, settings.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                "tls.certificate and tls.key cannot be used: both must be PEM files, belong together, and the key "
                "must have no passphrase"
            ) from error
    return context


def tls_error(error: BaseException, address: Address) -> TlsError | None:
    """Say what failed about TLS.

    Args:
        error: what connecting raised; the client library keeps the cause of it.
        address: where it was raised.

    Returns:
        The error with its fix, or None where it is not about TLS.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return TlsError(
                f"the certificate of the broker at {address} is not trusted (OpenSSL verify code {seen.verify_code}): "
                "set RabbitMQSettings.tls.ca to its authority, and use a host name that the certificate holds"
            )
        if isinstance(seen, ssl.SSLError):
            return TlsError(
                f"TLS was asked for, but no TLS session came about at {address}: is this the broker's TLS listener "
                "(usually port 5671, not 5672), and does it want a client certificate (tls.certificate, tls.key)?"
            )
        seen = seen.__cause__
    return None
