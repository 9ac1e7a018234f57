"""Produce one record with kafka-python, which leaves sockets and a thread behind if it cannot connect.

Standard input: the settings of the producer as JSON, in which ``token`` is one for OAUTHBEARER. Errors are logged.
"""

import json
import logging
import subprocess
import sys
from typing import Any

import kafka
from kafka.net.sasl.oauth import AbstractTokenProvider


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    def token(self) -> str:
        return self._made


def failure(**settings: Any) -> str:
    """Run the program, which must fail. Return what it logged, with the error at the end."""
    command = [sys.executable, __file__]
    given = json.dumps({"bootstrap_timeout_ms": 3000, **settings})
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    settings = json.load(sys.stdin)
    token = settings.pop("token", None)
    provider = {"sasl_oauth_token_provider": Provider(token)} if token else {}
    kafka.KafkaProducer(**settings, **provider).send("kafka-python", b"v").get(30)


if __name__ == "__main__":
    main()
