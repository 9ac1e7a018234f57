"""`kafscale certificates`: makes certificates for development and small installations."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from kafscale_tools.cli.certificate_files import (
    CA,
    CertificateError,
    Issued,
    Use,
    all_certificates,
    checked_host,
    checked_name,
    checked_subject,
    create_authority,
    existing,
    issue,
)
from kafscale_tools.cli.present import printable, table

T = TypeVar("T")
_DAYS = click.IntRange(1, 36_500)


def _checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, T], T]:
    """Return a click callback that passes one value or several to ``check``."""

    def callback(_: click.Context, __: click.Parameter, value: T) -> T:
        try:
            if isinstance(value, tuple):
                return tuple(map(check, value))  # type: ignore[return-value]
            return value if value is None else check(value)  # type: ignore[return-value, arg-type]
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


@click.group()
def certificates() -> None:
    """Make a CA and certificates of services, Kafka listeners and clients.

    For development and small installations: the key of the CA is a file without a password. Keep the directory on a
    machine that runs no service, and copy to each machine only its own files and ca.pem.
    """


@certificates.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--name", required=True, callback=_checked(checked_name), help="The certificate becomes NAME.pem, its key NAME.key."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    callback=_checked(checked_host),
    help="A DNS name or IP address to which others connect. Can be repeated.",
)
@click.option("--client", is_flag=True, help="A client's certificate, which servers cannot present.")
@click.option(
    "--subject",
    callback=_checked(checked_subject),
    help="The distinguished name (RFC 4514), such as CN=ann,O=sales. Default: CN=NAME.",
)
@click.option("--days", type=_DAYS, default=365, show_default=True, help="How long the certificate is valid.")
@click.option("--ca-days", type=_DAYS, default=3650, show_default=True, help="How long a new CA is valid.")
@click.option(
    "--renew", is_flag=True, help="Replace the certificate and its key. Without --host and --subject, both stay."
)
def create(
    *,
    directory: Path,
    name: str,
    hosts: tuple[str, ...],
    client: bool,
    subject: str | None,
    days: int,
    ca_days: int,
    renew: bool,
) -> None:
    """Make a certificate in DIRECTORY, signed by the CA there, which is made first if there is none.

    Services present their certificates to each other, as servers and as clients. With
    KAFSCALE_RPC_TLS_CLIENT_AUTH=required, whoever has a certificate of their CA may call them, so make the certificates
    of Kafka clients in another directory.
    """
    now = datetime.now(UTC)
    try:
        former = existing(directory, name)
        if former is None and renew:
            raise CertificateError(f"{directory / name}.pem does not exist")
        if former is not None and not renew:
            raise CertificateError(f"{directory / name}.pem exists; use --renew to replace it")
        use = Use.CLIENT if client else Use.SERVICE
        if former is not None:
            use, hosts, subject = former.use, hosts or former.hosts, subject or former.subject
        if use is Use.CLIENT and hosts:
            raise click.UsageError("the certificate of a client has no hosts")
        if use is Use.SERVICE and not hosts:
            raise click.UsageError("a service needs at least one --host; for the certificate of a client, use --client")
        if create_authority(directory, ca_days, now):
            click.echo(f"wrote {directory / CA}.pem and {directory / CA}.key, valid for {ca_days} days")
        made = issue(directory, name, use=use, subject=subject, hosts=hosts, days=days, now=now)
    except (CertificateError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"wrote {directory / name}.pem and {directory / name}.key, valid for {days} days: {made.subject}")
    for line in _settings(made, directory.resolve()):
        click.echo(line)


@certificates.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show(directory: Path, output: str) -> None:
    """List the certificates in DIRECTORY with their hosts, subjects and expiry times.

    Exits with status 1 if one has expired.
    """
    try:
        found = all_certificates(directory)
    except CertificateError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(json.dumps({"certificates": [_fields(one) for one in found]}, indent=2))
    else:
        heads = ("NAME", "USE", "EXPIRES", "SUBJECT", "HOSTS")
        for line in table(heads, [_row(one) for one in found], left=heads, indent=""):
            click.echo(line)
    expired = [one.name for one in found if one.expires <= datetime.now(UTC)]
    if expired:
        raise click.ClickException(f"expired: {', '.join(map(printable, expired))}")


def _row(one: Issued) -> tuple[str, ...]:
    hosts = printable(", ".join(one.hosts)) or "-"
    return printable(one.name), one.use, f"{one.expires:%Y-%m-%d %H:%M:%SZ}", printable(one.subject), hosts


def _fields(one: Issued) -> dict[str, object]:
    return {
        "name": one.name,
        "use": one.use,
        "subject": one.subject,
        "hosts": one.hosts,
        "expires": one.expires.isoformat(),
    }


def _settings(made: Issued, directory: Path) -> Iterator[str]:
    """Yield the settings that use a certificate."""
    authority, own = directory / f"{CA}.pem", directory / made.name
    if made.use is Use.SERVICE:
        yield "\nFor calls between services:\n"
        yield f"  KAFSCALE_RPC_TLS_CA_FILE={authority}"
        yield f"  KAFSCALE_RPC_TLS_CERT_FILE={own}.pem"
        yield f"  KAFSCALE_RPC_TLS_KEY_FILE={own}.key"
        yield "  KAFSCALE_RPC_TLS_CLIENT_AUTH=required"
        yield "\nOr for a Kafka listener:\n"
        yield f"  KAFSCALE_TLS_CERT_FILE={own}.pem"
        yield f"  KAFSCALE_TLS_KEY_FILE={own}.key"
        return
    yield "\nOn gateways, for Kafka listeners that require certificates:\n"
    yield f"  KAFSCALE_TLS_CA_FILE={authority}"
    yield "  KAFSCALE_TLS_CLIENT_AUTH=required"
    yield "\nFor the client, in the configuration of librdkafka:\n"
    yield f"  ssl.certificate.location={own}.pem"
    yield f"  ssl.key.location={own}.key"
