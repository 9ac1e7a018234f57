"""A CA and the certificates that it signs, as PEM files in one directory.

``ca.pem`` and ``ca.key`` are the CA, ``NAME.pem`` and ``NAME.key`` a certificate and its key (PKCS #8, not encrypted).
All keys are of the curve P-256. Certificates follow RFC 5280.
"""

import ipaddress
import os
import re
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA = "ca"
_CERTIFICATE, _KEY = ".pem", ".key"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_LONGEST_HOST = 253
_CLOCK_SKEW = timedelta(minutes=5)
"""How much the clock of a machine that checks a new certificate may be behind."""


class CertificateError(Exception):
    """A file is missing, exists already, or is not what its name says."""


class Use(StrEnum):
    """Who presents a certificate. Services present theirs as servers and as clients of each other."""

    CA = "ca"
    SERVICE = "service"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate in the directory. ``subject`` is written by RFC 4514."""

    name: str
    use: Use
    subject: str
    hosts: tuple[str, ...]
    expires: datetime


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def checked_name(name: str) -> str:
    """Return ``name``, from which the names of the files are made. Raises ValueError."""
    if _NAME.fullmatch(name) is None or name == CA:
        raise ValueError(f"{name!r} is not up to 64 letters, digits, dots, hyphens and underscores, or is {CA!r}")
    return name


def checked_host(host: str) -> str:
    """Return ``host``, a DNS name or an IP address, as certificates contain it. Raises ValueError."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if len(host) > _LONGEST_HOST or _HOST.fullmatch(host) is None:
        raise ValueError(f"{host!r} is neither a DNS name nor an IP address")
    return host.lower()


def checked_subject(subject: str) -> str:
    """Return ``subject``, a distinguished name of RFC 4514 such as ``CN=ann,O=sales``. Raises ValueError."""
    if not list(x509.Name.from_rfc4514_string(subject)):
        raise ValueError("the name is empty")
    return subject


def create_authority(directory: Path, days: int, now: datetime) -> bool:
    """Create the directory and its CA. Return False if it has one. Raises CertificateError if only half is there."""
    directory.mkdir(parents=True, exist_ok=True)
    certificate_file, key_file = _files(directory, CA)
    if certificate_file.exists():
        return False
    if key_file.exists():
        raise CertificateError(f"{key_file} exists without {certificate_file.name}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"KafScale CA of {now:%Y-%m-%d}")])
    builder = (
        _builder(name, name, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    _store(directory, CA, builder.sign(key, hashes.SHA256()), key)
    return True


def issue(
    directory: Path, name: str, *, use: Use, subject: str | None, hosts: tuple[str, ...], days: int, now: datetime
) -> Issued:
    """Sign a certificate for a new key and store both, in place of those that exist. ``subject`` None: ``CN=name``.

    Raises CertificateError if the CA is unusable or ends earlier.
    """
    authority = _authority(directory)
    ends = authority.certificate.not_valid_after_utc
    if now + timedelta(days=days) > ends:
        raise CertificateError(f"the CA ends on {ends:%Y-%m-%d}, before the certificate would")
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if use is Use.SERVICE:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    common_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    of_subject = common_name if subject is None else x509.Name.from_rfc4514_string(subject)
    signer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(of_subject, authority.certificate.subject, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    _store(directory, name, certificate, key)
    return _described(name, certificate)


def existing(directory: Path, name: str) -> Issued | None:
    """Return the certificate of ``name``, or None. Raises CertificateError if the file has no certificate."""
    certificate_file, key_file = _files(directory, name)
    if not certificate_file.exists():
        if key_file.exists():
            raise CertificateError(f"{key_file} exists without {certificate_file.name}")
        return None
    return _described(name, _read_certificate(certificate_file))


def all_certificates(directory: Path) -> list[Issued]:
    """Return the CA and then the others by name. Raises CertificateError if a file has no certificate."""
    names = sorted(path.stem for path in directory.glob(f"*{_CERTIFICATE}"))
    found = [_described(name, _read_certificate(_files(directory, name)[0])) for name in names]
    return sorted(found, key=lambda one: one.use is not Use.CA)


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}{_CERTIFICATE}", directory / f"{name}{_KEY}"


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _described(name: str, certificate: x509.Certificate) -> Issued:
    hosts: tuple[str, ...] = ()
    use = Use.CLIENT
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            addresses = value.get_values_for_type(x509.IPAddress)
            hosts = (*value.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))
        elif isinstance(value, x509.BasicConstraints) and value.ca:
            use = Use.CA
        elif isinstance(value, x509.ExtendedKeyUsage) and ExtendedKeyUsageOID.SERVER_AUTH in value:
            use = Use.SERVICE
    return Issued(name, use, certificate.subject.rfc4514_string(), hosts, certificate.not_valid_after_utc)


def _authority(directory: Path) -> _Authority:
    certificate_file, key_file = _files(directory, CA)
    certificate = _read_certificate(certificate_file)
    try:
        key = serialization.load_pem_private_key(_read(key_file), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{key_file} contains no private key that can be used") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise CertificateError(f"{key_file} is not the key of {certificate_file}")
    return _Authority(certificate, key)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(_read(path))
        # They are parsed only when they are asked for.
        _ = certificate.extensions
    except (ValueError, x509.DuplicateExtension) as error:
        raise CertificateError(f"{path} contains no certificate that can be read: {error}") from error
    return certificate


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from error


def _store(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    certificate_file, key_file = _files(directory, name)
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _replace(key_file, plain, 0o600)
    _replace(certificate_file, certificate.public_bytes(pem), 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is never seen in part. One that exists keeps its mode and its owner."""
    # The mode of a temporary file is 0600.
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    unfinished = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            if path.exists():
                former = path.stat()
                os.fchown(file.fileno(), former.st_uid, former.st_gid)
                mode = former.st_mode & 0o777
            os.fchmod(file.fileno(), mode)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
