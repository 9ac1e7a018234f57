"""TLS on Kafka listeners: the certificates of each listener, which are read again when their files change."""

import ssl
from collections.abc import Iterable
from pathlib import Path

from kafscale.config.client_security import LISTENER, NONE, REQUESTED, REQUIRED, ClientSecuritySettings
from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.process.certificates import CertificateFiles, Followed, server_context
from kafscale.security.certificates import distinguished_name
from kafscale.security.principals import ANONYMOUS, NameRules, NoRuleApplies, Principal

_SETTINGS = "KAFSCALE_TLS"
_VERIFIED = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class ServerTls:
    """The TLS of all encrypted listeners."""

    def __init__(self, settings: ClientSecuritySettings, listeners: Iterable[Listener]) -> None:
        """Read the files. Raises a ConfigError that names the faulty one."""
        self._settings = settings
        self._rules = NameRules(settings.tls_principal_mapping_rules)
        self._listeners = [each for each in listeners if each.encrypted]
        self._files = {each.name: _files_of(settings, each) for each in self._listeners}
        self._by_host = {each.advertised_host.lower(): each.name for each in reversed(self._listeners)}
        self.contexts = Followed(
            self._files.values(), self._all_contexts, settings=_SETTINGS, what="certificates of listeners"
        )
        """By the listener that accepts a connection, and the listener whose certificate it presents."""

    def context(self, accepting: Listener, host: str) -> ssl.SSLContext:
        """Return the context for a new connection to a listener: with the certificate of the listener whose advertised
        host the client asks for, in lower case, or else with its own."""
        if host == accepting.advertised_host.lower():
            return self.contexts.value[accepting.name, accepting.name]
        return self.contexts.value[accepting.name, self._by_host.get(host, accepting.name)]

    def principal(self, certificate: bytes | None) -> Principal:
        """Return who a client with this certificate (DER) is. Raises NoRuleApplies, also if the name is unreadable."""
        if certificate is None:
            return ANONYMOUS
        try:
            name = distinguished_name(certificate)
        except ValueError as error:
            raise NoRuleApplies(f"the name in a client's certificate cannot be read: {error}") from error
        return self._rules.user_of(name)

    def _all_contexts(self) -> dict[tuple[str, str], ssl.SSLContext]:
        """Each accepting listener keeps its own CA for clients, whatever host they ask for."""
        return {
            (accepting.name, presented): self._context(accepting, presented)
            for accepting in self._listeners
            for presented in {accepting.name, *self._by_host.values()}
        }

    def _context(self, accepting: Listener, presented: str) -> ssl.SSLContext:
        settings = self._settings
        own, authorities = self._files[presented], self._files[accepting.name].authorities
        files = CertificateFiles(own.certificate, own.key, authorities)
        context = server_context(files, settings=_SETTINGS, clients=_VERIFIED[settings.tls_client_auth])
        context.minimum_version = _VERSIONS[settings.tls_min_version]
        if settings.tls_ciphers is not None:
            try:
                context.set_ciphers(settings.tls_ciphers)
            except ssl.SSLError as error:
                raise ConfigError(f"KAFSCALE_TLS_CIPHERS: {error}") from error
        return context


def _files_of(settings: ClientSecuritySettings, listener: Listener) -> CertificateFiles:
    def path(text: str) -> Path:
        return Path(text.replace(LISTENER, listener.name.lower()))

    if settings.tls_cert_file is None or settings.tls_key_file is None:
        raise ConfigError(f"listener {listener.name} has TLS; set KAFSCALE_TLS_CERT_FILE and KAFSCALE_TLS_KEY_FILE")
    authorities = None if settings.tls_ca_file is None else path(settings.tls_ca_file)
    return CertificateFiles(path(settings.tls_cert_file), path(settings.tls_key_file), authorities)
