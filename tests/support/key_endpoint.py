"""An HTTPS endpoint on loopback that publishes an issuer's keys."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import trustme

from tests.support.issuer import Issuer


class KeyEndpoint:
    """``url`` and ``ca_file`` are those of the endpoint. Tests may change what it answers."""

    def __init__(self, issuer: Issuer, ca_file: Path, port: int) -> None:
        self.issuer = issuer
        self.ca_file = ca_file
        self.url = f"https://127.0.0.1:{port}/keys"
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None
        """The body of answers, instead of the issuer's keys."""
        self.requests = 0
        self.answering = Event()
        self.answering.set()


@contextmanager
def key_endpoint(issuer: Issuer, directory: Path) -> Iterator[KeyEndpoint]:
    """Run an endpoint in threads. Its CA's certificate is written into the directory."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "endpoint-ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            endpoint.requests += 1
            endpoint.answering.wait(30)
            body = endpoint.issuer.document if endpoint.body is None else endpoint.body
            self.send_response(endpoint.status)
            for name, value in endpoint.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def finish_request(self, request: Any, client_address: Any) -> None:
            # In the thread of the connection, so that one without a handshake does not hold up others.
            try:
                with context.wrap_socket(request, server_side=True) as secured:
                    Handler(secured, client_address, self)
            except OSError:
                return

    server = Server(("127.0.0.1", 0), Handler)
    endpoint = KeyEndpoint(issuer, directory / "endpoint-ca.pem", server.server_port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
