"""The options of commands by which they connect to Kafka listeners with TLS and SASL."""

import functools
from collections.abc import Callable
from typing import Any

import click

from kafscale.config.kafka_client import MECHANISMS, KafkaClientSettings
from kafscale.config.listeners import PROTOCOLS
from kafscale.config.settings import load
from kafscale.errors import ConfigError
from kafscale.kafka_client.security import security_of
from kafscale_tools.cli.admin.server import FILE, Overriding, environment, with_options
from kafscale_tools.cli.exits import Exit, Failed

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
            security = security_of(load(KafkaClientSettings, environment(_OPTIONS, arguments)))
        except ConfigError as error:
            raise Failed(str(error), Exit.WRONG) from error
        command(security=security, **arguments)

    return with_options(with_security, _OPTIONS)
