"""The three HTTP sources of AWS credentials on a loopback port: STS, a container's endpoint, and IMDSv2."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_INSTANCE = "/latest/meta-data/iam/security-credentials/"
_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId>
<SecretAccessKey>{SecretAccessKey}</SecretAccessKey><SessionToken>{Token}</SessionToken>
<Expiration>{Expiration}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class AwsEndpoints:
    """``answers``: the sources that work. ``web_identity_token`` and ``container_token``: the tokens they accept."""

    def __init__(self) -> None:
        self.access_key, self.secret_key, self.session_token = "AKIATEST", "secret", ""
        self.life = timedelta(hours=1)
        self.failing = False
        self.given = 0
        self.web_identity_token = "identity-1"
        self.container_token = "container-1"
        self.url = ""

    def reply(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, str]:
        if self.failing:
            return 503, "<html>not now</html>"
        parts = urlsplit(target)
        if (method, parts.path) == ("PUT", "/latest/api/token"):
            return (200, "imds-2") if "x-aws-ec2-metadata-token-ttl-seconds" in headers else (400, "")
        if parts.path.startswith(_INSTANCE):
            if headers.get("x-aws-ec2-metadata-token") != "imds-2":
                return 401, ""
            return (200, "the-role") if parts.path == _INSTANCE else (200, json.dumps(self._credentials()))
        if parts.path == "/container":
            allowed = headers.get("authorization") == self.container_token
            return (200, json.dumps(self._credentials())) if allowed else (403, "")
        asked = parse_qs(parts.query)
        if method == "POST" and asked.get("Action") == ["AssumeRoleWithWebIdentity"]:
            allowed = asked.get("WebIdentityToken") == [self.web_identity_token] and "RoleArn" in asked
            return (200, _STS.format(**self._credentials())) if allowed else (403, "")
        return 404, ""

    def _credentials(self) -> dict[str, str]:
        self.given += 1
        return {
            "Code": "Success",
            "AccessKeyId": self.access_key,
            "SecretAccessKey": self.secret_key,
            "Token": self.session_token,
            "Expiration": (datetime.now(UTC) + self.life).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


@contextmanager
def running_endpoints() -> Iterator[AwsEndpoints]:
    endpoints = AwsEndpoints()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = endpoints.reply(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = do_POST = _answer  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    endpoints.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield endpoints
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
