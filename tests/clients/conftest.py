"""The brokers and clients of all scenarios.

With ``KAFSCALE_TEST_AGAINST=apache`` the scenarios run on Apache Kafka, to check that they describe Kafka's behaviour.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers.apache_kafka import AGAINST_APACHE, apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.clients import ASKERS, CLIENTS, MAKERS
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import AskingClient, Client, TopicClient

STORES = ("apache",) if AGAINST_APACHE else ("local", "s3")

C = TypeVar("C", bound=Client)
MakeBroker = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def store_env(store: str, request: pytest.FixtureRequest) -> Callable[[], Mapping[str, str]]:
    """Return a function that returns settings of a new store: none for a local directory, a new bucket for S3."""

    def fresh() -> Mapping[str, str]:
        if store != "s3":
            return {}
        minio = request.getfixturevalue("minio")
        settings: Mapping[str, str] = minio.broker_settings()
        return settings

    return fresh


@pytest.fixture(scope="session")
def make_broker(
    store: str, store_env: Callable[[], Mapping[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> MakeBroker:
    """Return a factory of context managers that start a new broker and yield its address."""

    @contextmanager
    def make(*, auto_create: bool = True) -> Iterator[str]:
        directory: Path = tmp_path_factory.mktemp("broker")
        flag = str(auto_create).lower()
        if store == "apache":
            properties = [f"auto.create.topics.enable={flag}", "log.cleaner.backoff.ms=500"]
            with apache_kafka(directory, properties=properties) as kafka:
                yield kafka.bootstrap
            return
        settings = {"KAFSCALE_AUTO_CREATE_TOPICS": flag, "KAFSCALE_REWRITE_CHECK_MS": "500"}
        broker = KafscaleBroker(directory, {**store_env(), **settings})
        try:
            yield broker.bootstrap
        finally:
            broker.stop()

    return make


@pytest.fixture(scope="session")
def bootstrap(make_broker: MakeBroker) -> Iterator[str]:
    """The address of a broker that all scenarios with one store share."""
    with make_broker() as address:
        yield address


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[Mapping[str, Client]]:
    """Every client, connected to the shared broker."""
    with _connected(CLIENTS, bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def makers(bootstrap: str) -> Iterator[Mapping[str, TopicClient]]:
    """Every client that creates topics."""
    with _connected(MAKERS, bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def askers(bootstrap: str) -> Iterator[Mapping[str, AskingClient]]:
    """Every client that sends with each request whether the topic may be created."""
    with _connected(ASKERS, bootstrap) as made:
        yield made


@contextmanager
def _connected(kinds: Mapping[str, type[C]], bootstrap: str) -> Iterator[Mapping[str, C]]:
    made: dict[str, C] = {}
    with ExitStack() as stack:
        for name, make in kinds.items():
            made[name] = make(bootstrap)
            stack.callback(made[name].close)
        yield made


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest, clients: Mapping[str, Client]) -> Client:
    """Each client in turn."""
    return clients[request.param]


_TOPIC_NUMBERS = itertools.count()


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic with one partition."""
    name = f"topic-{next(_TOPIC_NUMBERS)}"
    ConfluentClient(bootstrap).create_topic(name, configs={"compression.type": "producer"})
    return name
