"""TLS on Kafka listeners: the certificates of each listener, which are read again when their files change."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio
from cryptography import x509

from kafscale.config.client_security import LISTENER, NONE, REQUIRED, ClientSecuritySettings
from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.security.principals import ANONYMOUS, NameRules, NoRuleApplies, Principal

_CHECK_SECONDS = 5.0
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Files:
    certificate: Path
    key: Path
    authorities: Path | None

    def state(self) -> tuple[object, ...]:
        """Return what changes when a file does. Raises OSError."""
        files = [path.stat() for path in (self.certificate, self.key, self.authorities) if path is not None]
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)


class ServerTls:
    """The TLS of all encrypted listeners. `run` must be running, so that changed files are noticed."""

    def __init__(self, settings: ClientSecuritySettings, listeners: Iterable[Listener]) -> None:
        """Read the files. Raises a ConfigError that names the faulty one."""
        self._settings = settings
        self._rules = NameRules(settings.tls_principal_mapping_rules)
        self._listeners = [each for each in listeners if each.encrypted]
        self._files = {each.name: _files_of(settings, each) for each in self._listeners}
        self._by_host = {each.advertised_host.lower(): each.name for each in reversed(self._listeners)}
        self._state = self._current_state()
        # By the listener that accepts a connection, and the listener whose certificate it presents.
        self._contexts = self._all_contexts()
        self._fault = ""

    def context(self, accepting: Listener, host: str) -> ssl.SSLContext:
        """Return the context for a new connection to a listener: with the certificate of the listener whose advertised
        host the client asks for, in lower case, or else with its own."""
        if host == accepting.advertised_host.lower():
            return self._contexts[accepting.name, accepting.name]
        return self._contexts[accepting.name, self._by_host.get(host, accepting.name)]

    def principal(self, certificate: bytes | None) -> Principal:
        """Return who a client with this certificate (DER) is. Raises NoRuleApplies, also if the name is unreadable."""
        if certificate is None:
            return ANONYMOUS
        try:
            name = distinguished_name(certificate)
        except ValueError as error:
            raise NoRuleApplies(f"the name in a client's certificate cannot be read: {error}") from error
        return self._rules.user_of(name)

    async def run(self) -> None:
        """Look for changed files until cancelled. A faulty change is logged, and the former files stay in use."""
        while True:
            await trio.sleep(_CHECK_SECONDS)
            await trio.to_thread.run_sync(self.reload)

    def reload(self) -> None:
        """Use files that have changed for new connections. A faulty change is logged, once."""
        try:
            state = self._current_state()
            if state == self._state:
                return
            self._contexts = self._all_contexts()
        except ConfigError as error:
            if str(error) != self._fault:
                _log.error("certificates of listeners not changed", error=str(error))
            self._fault = str(error)
        else:
            self._state, self._fault = state, ""
            _log.info("certificates of listeners changed")

    def _current_state(self) -> dict[str, tuple[object, ...]]:
        return {name: _state(files) for name, files in self._files.items()}

    def _all_contexts(self) -> dict[tuple[str, str], ssl.SSLContext]:
        """Each accepting listener keeps its own CA for clients, whatever host they ask for."""
        return {
            (accepting.name, presented): self._context(accepting, presented)
            for accepting in self._listeners
            for presented in {accepting.name, *self._by_host.values()}
        }

    def _context(self, accepting: Listener, presented: str) -> ssl.SSLContext:
        settings = self._settings
        files, authorities = self._files[presented], self._files[accepting.name].authorities
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.tls_min_version]
        # Renegotiation lets a client cause work without end.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"KAFSCALE_TLS_CERT_FILE, KAFSCALE_TLS_KEY_FILE: {files.certificate} and {files.key} are not a "
                f"certificate and its key: {error}"
            ) from error
        if settings.tls_ciphers is not None:
            try:
                context.set_ciphers(settings.tls_ciphers)
            except ssl.SSLError as error:
                raise ConfigError(f"KAFSCALE_TLS_CIPHERS: {error}") from error
        if settings.tls_client_auth != NONE and authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED if settings.tls_client_auth == REQUIRED else ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(authorities)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"KAFSCALE_TLS_CA_FILE: {authorities}: {error}") from error
        return context


def distinguished_name(certificate: bytes) -> str:
    """Return the name of a certificate's (DER) subject by RFC 4514, as ``CN=ann,OU=sales,C=DE``."""
    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()


def _files_of(settings: ClientSecuritySettings, listener: Listener) -> _Files:
    def path(text: str) -> Path:
        return Path(text.replace(LISTENER, listener.name.lower()))

    if settings.tls_cert_file is None or settings.tls_key_file is None:
        raise ConfigError(f"listener {listener.name} has TLS; set KAFSCALE_TLS_CERT_FILE and KAFSCALE_TLS_KEY_FILE")
    authorities = None if settings.tls_ca_file is None else path(settings.tls_ca_file)
    return _Files(path(settings.tls_cert_file), path(settings.tls_key_file), authorities)


def _state(files: _Files) -> tuple[object, ...]:
    try:
        return files.state()
    except OSError as error:
        raise ConfigError(f"KAFSCALE_TLS_*_FILE: {error.filename}: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")
