"""Calls of commands to a gateway's Admin service, and the options that these commands share."""

import functools
import math
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import grpc
import trio
from google.protobuf.message import Message

from kafscale.config.admin_access import AdminClientSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError, KafscaleError, Unavailable
from kafscale.rpc.admin import serving_gateway
from kafscale.rpc.client import Channel
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import Method
from kafscale_tools.cli.exits import Exit, Failed

SETTINGS = (AdminClientSettings, RpcSettings)
"""The settings that commands read. Options override them."""

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
T = TypeVar("T")


_STATUS = grpc.StatusCode
_EXITS = {
    _STATUS.INVALID_ARGUMENT: Exit.WRONG,
    _STATUS.NOT_FOUND: Exit.NOT_FOUND,
    _STATUS.ALREADY_EXISTS: Exit.EXISTS,
    _STATUS.FAILED_PRECONDITION: Exit.REFUSED,
    _STATUS.UNAUTHENTICATED: Exit.DENIED,
    _STATUS.PERMISSION_DENIED: Exit.DENIED,
    _STATUS.UNAVAILABLE: Exit.UNAVAILABLE,
    _STATUS.DEADLINE_EXCEEDED: Exit.UNAVAILABLE,
    _STATUS.CANCELLED: Exit.UNAVAILABLE,
    _STATUS.RESOURCE_EXHAUSTED: Exit.UNAVAILABLE,
}


class Server:
    """The first of the configured addresses that serves the Admin service. It is determined once.

    Raises ConfigError if the file of the token is invalid.
    """

    def __init__(self, settings: AdminClientSettings, rpc: RpcSettings, *, timeout: float) -> None:
        self._addresses = settings.admin_servers
        token = settings.token()
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._rpc = rpc
        self._timeout = timeout
        self._found = ""

    @property
    def timeout(self) -> float:
        """The timeout of a call in seconds."""
        return self._timeout

    def ask(self, method: Method[Q, A], request: Q) -> A:
        """Call a method and return its reply. Raises Failed."""
        reply: A = self._run(self._ask, method, request)
        return reply

    def follow(self, method: Method[Q, A], request: Q, take: Callable[[A], bool], *, seconds: float = math.inf) -> bool:
        """Call ``take`` with each message of a stream until it returns True.

        Returns False if that takes longer than ``seconds``. Raises Failed, also if the stream ends before.
        """
        return self._run(self._follow, method, request, take, seconds)

    def _run(self, asking: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        try:
            return trio.run(asking, *arguments)
        except StatusError as error:
            raise Failed(str(error), _EXITS.get(error.code, Exit.FAILED)) from error
        except ConfigError as error:
            raise Failed(str(error), Exit.WRONG) from error
        except KafscaleError as error:
            raise Failed(str(error), Exit.FAILED) from error

    async def _ask(self, method: Method[Q, A], request: Q) -> A:
        await self._find()
        async with self._channel(self._found) as channel:
            return await channel.call(method, request, timeout=self._timeout, metadata=self._metadata)

    async def _follow(self, method: Method[Q, A], request: Q, take: Callable[[A], bool], seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self._find()
            async with (
                self._channel(self._found) as channel,
                channel.stream(method, request, metadata=self._metadata) as messages,
            ):
                while not take(await messages.receive()):
                    pass
                return True
        return False

    async def _find(self) -> None:
        if not self._found:
            try:
                self._found = await serving_gateway(self._addresses, self._channel, timeout=self._timeout)
            except Unavailable as error:
                raise Failed(str(error), Exit.UNAVAILABLE) from error

    def _channel(self, address: str) -> Channel:
        return Channel(address, self._rpc.limits(), tls=self._rpc.tls(), error_of=StatusError)


FILE = click.Path(dir_okay=False)
Overriding = dict[str, tuple[str, dict[str, Any]]]
"""For each argument, the environment variable that it overrides and the parameters of its click option."""
_OPTIONS: Overriding = {
    "server": (
        "KAFSCALE_ADMIN_SERVER",
        {"metavar": "HOST:PORT,...", "help": "Gateways; the first one that answers is used. Default: the local one."},
    ),
    "token": (
        "KAFSCALE_ADMIN_TOKEN",
        {
            "metavar": "TOKEN",
            "help": "The token of the Admin service. Unlike the variable, the option is visible in process lists.",
        },
    ),
    "tls_ca": (
        "KAFSCALE_RPC_TLS_CA_FILE",
        {"type": FILE, "help": "Use TLS, and trust gateway certificates signed by these CAs (PEM)."},
    ),
    "tls_cert": ("KAFSCALE_RPC_TLS_CERT_FILE", {"type": FILE, "help": "The client certificate (PEM)."}),
    "tls_key": ("KAFSCALE_RPC_TLS_KEY_FILE", {"type": FILE, "help": "The key of the client certificate (PEM)."}),
    "tls_server_name": (
        "KAFSCALE_RPC_TLS_SERVER_NAME",
        {"metavar": "NAME", "help": "The name that gateway certificates must contain."},
    ),
}

_timeout = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=60.0,
    show_default=True,
    help="The maximum time to wait for an answer of a gateway.",
)


def with_options(command: Callable[..., None], options: Overriding) -> Callable[..., None]:
    """Add options to a command. `environment` returns the variables that they override."""
    for name, (variable, details) in reversed(options.items()):
        text = f"{details['help']} [{variable}]"
        command = click.option(f"--{name.replace('_', '-')}", **{**details, "help": text})(command)
    return command


def environment(options: Overriding, arguments: dict[str, Any]) -> dict[str, str]:
    """Return the environment with the given options. Removes them from the ``arguments`` of a command.

    An option also replaces the variable that names a file with its value.
    """
    arguments_by_variable = {variable: arguments.pop(name) for name, (variable, _) in options.items()}
    given = {variable: value for variable, value in arguments_by_variable.items() if value is not None}
    files = {f"{variable}_FILE" for variable in given}
    return {name: value for name, value in os.environ.items() if name not in files} | given


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection options to a command, and pass it a `Server` as its first argument."""

    @functools.wraps(command)
    def with_server(*, timeout: float, **arguments: Any) -> None:
        environ = environment(_OPTIONS, arguments)
        try:
            settings, rpc = load(AdminClientSettings, environ), load(RpcSettings, environ)
            server = Server(settings, rpc, timeout=timeout)
        except ConfigError as error:
            raise Failed(str(error), Exit.WRONG) from error
        command(server, **arguments)

    return with_options(_timeout(with_server), _OPTIONS)
