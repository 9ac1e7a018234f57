"""The options of commands by which they connect to Kafka listeners with TLS and SASL."""

import functools
import ssl
from collections.abc import Callable
from typing import Any

import click

from kafscale.config.kafka_client import MECHANISMS, KafkaClientSettings
from kafscale.config.listeners import PROTOCOLS
from kafscale.config.settings import load
from kafscale.errors import ConfigError
from kafscale_tools.cli.admin.server import FILE, Overriding, environment, with_options
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.kafka.connection import Login, Security

_OPTIONS: Overriding = {
    "security_protocol": (
        "KAFSCALE_CLIENT_SECURITY_PROTOCOL",
        {
            "type": click.Choice(PROTOCOLS, case_sensitive=False),
            "help": "The security protocol of the Kafka listeners. Default: PLAINTEXT.",
        },
    ),
    "ca_file": (
        "KAFSCALE_CLIENT_CA_FILE",
        {"type": FILE, "help": "Trust certificates of listeners signed by these CAs (PEM). Default: the system's."},
    ),
    "cert_file": ("KAFSCALE_CLIENT_CERT_FILE", {"type": FILE, "help": "The client certificate for listeners (PEM)."}),
    "key_file": ("KAFSCALE_CLIENT_KEY_FILE", {"type": FILE, "help": "The key of this certificate (PEM)."}),
    "mechanism": (
        "KAFSCALE_CLIENT_MECHANISM",
        {
            "type": click.Choice(MECHANISMS, case_sensitive=False),
            "help": "The SASL mechanism. Default: SCRAM-SHA-512.",
        },
    ),
    "user": ("KAFSCALE_CLIENT_USER", {"metavar": "NAME", "help": "The user for SASL."}),
    "password_file": (
        "KAFSCALE_CLIENT_PASSWORD_FILE",
        {
            "type": FILE,
            "help": "A file with the user's password. A line break at its end is not part of it. The variable "
            "KAFSCALE_CLIENT_PASSWORD can contain the password instead.",
        },
    ),
}


def secured(command: Callable[..., None]) -> Callable[..., None]:
    """Add options about TLS and SASL to a command, and pass it a `Security` as ``security``."""

    @functools.wraps(command)
    def with_security(**arguments: Any) -> None:
        try:
            security = _security_of(load(KafkaClientSettings, environment(_OPTIONS, arguments)))
        except ConfigError as error:
            raise Failed(str(error), Exit.WRONG) from error
        command(security=security, **arguments)

    return with_options(with_security, _OPTIONS)


def _security_of(settings: KafkaClientSettings) -> Security:
    """Raises a ConfigError that names the invalid file."""
    tls = _context_of(settings) if settings.encrypted else None
    login = None
    if settings.user is not None:
        login = Login(settings.mechanism, settings.user, settings.client_password())
    return Security(tls, login)


def _context_of(settings: KafkaClientSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise ConfigError(f"KAFSCALE_CLIENT_CA_FILE: {settings.ca_file}: {_reason(error)}") from error
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"KAFSCALE_CLIENT_CERT_FILE, KAFSCALE_CLIENT_KEY_FILE: {settings.cert_file} and {settings.key_file} "
                f"are not a certificate and its key: {_reason(error)}"
            ) from error
    return context


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _no_password() -> str:
    raise ValueError("the key is encrypted")
