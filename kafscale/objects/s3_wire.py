"""S3's wire format, without IO: presigned URLs, XML replies, and the meaning of error replies.

Source: Amazon S3's API reference (REST, Signature Version 4 in query parameters); MinIO's where it differs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, quote, unquote_plus, urlsplit
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape

from minio.credentials.credentials import Credentials
from minio.signer import presign_v4

from kafscale.errors import ConfigError, KafscaleError, Refused, Unavailable
from kafscale.objects.http_wire import Origin
from kafscale.objects.interface import ObjectInfo, ObjectNotFound, PreconditionFailed

SIGNATURE_SECONDS = 15
"""How long S3 accepts a request after it was signed. The write path relies on this: a request of a stalled or dead
process has taken effect by then, or never will."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
_TRANSIENT_CODES = frozenset(
    {"RequestTimeTooSkewed", "RequestTimeout", "RequestExpired", "SlowDown", "Throttling", "ThrottlingException"}
)

CredentialsProvider = Callable[[], Credentials]
"""Returns the credentials to sign the next request with. It must not block."""


@dataclass(frozen=True, slots=True)
class S3Config:
    """An empty ``region`` is detected at start. ``endpoint`` is ``http(s)://host[:port]``, or empty for Amazon's."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    path_style: bool = True


def static_credentials(config: S3Config) -> CredentialsProvider:
    """Return a provider of the keys in ``config``, which never expire. Raises ConfigError if one is missing."""
    if not (config.access_key and config.secret_key):
        raise ConfigError("KAFSCALE_S3_ACCESS_KEY and KAFSCALE_S3_SECRET_KEY: both are required for a bucket")
    credentials = Credentials(config.access_key, config.secret_key, config.session_token or None)
    return lambda: credentials


class Signer:
    """Makes presigned URLs of one bucket and its objects, without IO, in 50 us each."""

    def __init__(self, config: S3Config, region: str, credentials: CredentialsProvider) -> None:
        self._region = region
        self._credentials = credentials
        scheme, host, port, path = _parse_endpoint(config.endpoint or f"https://s3.{region}.amazonaws.com")
        # The signature covers the Host header, from which clients omit a default port.
        netloc = host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"
        domain = "" if config.path_style else f"{config.bucket}."
        self.origin = Origin((domain + host).strip("[]"), port or _DEFAULT_PORTS[scheme], scheme == "https")
        self.netloc = domain + netloc
        """The value of the Host header."""
        self._scheme = scheme
        bucket_path = f"/{quote(config.bucket, safe='')}" if config.path_style else ""
        self._base_path = path.rstrip("/") + bucket_path

    def target(self, method: str, key: str, query: Mapping[str, str], date: datetime) -> str:
        """Return the path and query of a presigned URL of ``key``, or of the bucket if it is empty.

        It is valid SIGNATURE_SECONDS from ``date``.
        """
        credentials = self._credentials()
        parameters = dict(query)
        if credentials.session_token:
            parameters["X-Amz-Security-Token"] = credentials.session_token
        encoded = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        path = f"{self._base_path}/{quote(key, safe='/~')}"
        signed = presign_v4(
            method=method,
            url=SplitResult(self._scheme, self.netloc, path, encoded, ""),
            region=self._region,
            credentials=credentials,
            date=date,
            expires=SIGNATURE_SECONDS,
        )
        return f"{signed.path}?{signed.query}"


def _parse_endpoint(endpoint: str) -> tuple[str, str, int | None, str]:
    """Return scheme, host in the form of a Host header, port, and path."""
    try:
        parts = urlsplit(endpoint)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in _DEFAULT_PORTS or parts.query or parts.username:
        raise ConfigError(f"KAFSCALE_S3_ENDPOINT: {endpoint!r} is not of the form http(s)://host[:port]")
    return parts.scheme, f"[{host}]" if ":" in host else host, port, parts.path


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. Header names are in lower case. ``signed_at`` is the date of the request's signature."""

    method: str
    key: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    signed_at: datetime

    @property
    def etag(self) -> str:
        """The ETag header without quotation marks."""
        return self.headers.get("etag", "").strip('"')

    @property
    def date(self) -> datetime | None:
        """The server's time, in whole seconds, or None."""
        try:
            return parsedate_to_datetime(self.headers["date"])
        except (KeyError, ValueError):
            return None


class S3Refused(Refused):
    """S3 rejected a request permanently. ``code`` is S3's error code, ``region`` the bucket's region in its reply.

    Both may be empty.
    """

    def __init__(self, message: str, code: str, region: str) -> None:
        super().__init__(message)
        self.code = code
        self.region = region


def failure(reply: Reply) -> KafscaleError:
    """Return the error for a reply with an unexpected status."""
    error = _parsed_or_empty(reply.body)
    code = error.findtext("Code") or reply.headers.get("x-minio-error-code", "")  # a reply to HEAD has no body
    message = error.findtext("Message") or reply.headers.get("x-minio-error-desc", "").strip('"')
    text = f"{reply.method} {reply.key or 'bucket'}: {reply.status} {code} {message}".rstrip()
    if reply.status == 412:
        return PreconditionFailed(text)
    if reply.status == 404 and (code == "NoSuchKey" or (reply.method == "HEAD" and not code)):
        return ObjectNotFound(reply.key)
    if reply.status in _TRANSIENT_STATUS or (reply.status >= 500 and reply.status != 501) or code in _TRANSIENT_CODES:
        return Unavailable(text)
    if reply.status == 403 and _out_of_time(reply, code, message):
        return Unavailable(f"{text} (the request took too long to arrive, or this machine's clock is off)")
    region = error.findtext("Region") or reply.headers.get("x-amz-bucket-region", "")
    return S3Refused(text, code, region)


def _out_of_time(reply: Reply, code: str, message: str) -> bool:
    """Return whether a 403 means an expired signature, which has no code of its own and to HEAD not even a message."""
    if code:
        return message.lower().startswith(("request has expired", "request is not valid yet"))
    return reply.date is not None and (reply.date - reply.signed_at).total_seconds() > SIGNATURE_SECONDS


def parse_listing(body: bytes) -> tuple[list[ObjectInfo], bool]:
    """Return the objects of a ListObjectsV2 reply with ``encoding-type=url``, and whether more follow."""
    result = parse_xml(body)
    page = [
        ObjectInfo(
            unquote_plus(entry.findtext("Key", "")),
            int(entry.findtext("Size", "0")),
            entry.findtext("ETag", "").strip('"'),
        )
        for entry in result.iter("Contents")
    ]
    return page, result.findtext("IsTruncated") == "true"


def deletion(keys: Iterable[str]) -> bytes:
    """Return the body of a DeleteObjects request whose reply lists errors only."""
    objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    return f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()


def deletion_error(body: bytes) -> str:
    """Return the first error in a DeleteObjects reply, or an empty string."""
    for error in parse_xml(body).iter("Error"):
        fields = (error.findtext(name, "") for name in ("Key", "Code", "Message"))
        return " ".join(fields).strip()
    return ""


def parse_location(body: bytes) -> str:
    """Return the region in a GetBucketLocation reply. S3 sends us-east-1 as empty and eu-west-1 as EU."""
    named = (parse_xml(body).text or "").strip()
    return {"": "us-east-1", "EU": "eu-west-1"}.get(named, named)


def parse_xml(body: bytes) -> Element:
    """Return the document's root, without namespaces. Raises Unavailable if it is not XML or has a document type.

    S3 sends no document types. Without one, a document has no entities that expand to gigabytes or refer to files.
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = lambda name, attributes: builder.start(name.rpartition("}")[2], attributes)
    parser.EndElementHandler = lambda name: builder.end(name.rpartition("}")[2])
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        raise Unavailable(f"the reply is not S3's XML: {error}") from error
    return builder.close()


def _refuse_doctype(*_: object) -> None:
    raise Unavailable("the reply is not S3's XML: it has a document type")


def _parsed_or_empty(body: bytes) -> Element:
    """Parse an error reply. It may come from a proxy and not be XML."""
    try:
        return parse_xml(body)
    except Unavailable:
        return Element("Error")
