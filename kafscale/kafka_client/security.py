"""How to connect to Kafka listeners, by the settings of clients."""

import ssl

from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.errors import ConfigError
from kafscale.kafka_client.connection import Login, Security


def security_of(settings: KafkaClientSettings) -> Security:
    """Return how to connect by these settings. Raises a ConfigError that names the invalid file."""
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
