"""`kafscale produce` and `kafscale consume` with Apache Kafka, whose SCRAM is the reference."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from kafscale_tools.cli.exits import Exit
from kafscale_tools.cli.main import main
from tests.servers.apache_kafka import apache_kafka
from tests.servers.ports import free_ports

pytestmark = pytest.mark.timeout(180)

USER, PASSWORD = "ann, = bob", "correct horse, battery=stäple"
_JAAS = "listener.name.sasl_plaintext.{}.sasl.jaas.config=org.apache.kafka.common.security.{} required;"


def test_the_password_is_proved_to_apache_kafka(tmp_path: Path) -> None:
    plain, sasl, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    properties = [
        f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners={listeners}",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        _JAAS.format("scram-sha-256", "scram.ScramLoginModule"),
        _JAAS.format("scram-sha-512", "scram.ScramLoginModule"),
        "connections.max.reauth.ms=3600000",
    ]
    with apache_kafka(tmp_path / "kafka", heap="512m", properties=properties):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}"})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 8192), PASSWORD.encode())
            admin.alter_user_scram_credentials([made])[USER].result(30)
        file, expected = tmp_path / "password", ""
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            listener = ("-b", f"127.0.0.1:{sasl}", "--security-protocol", "SASL_PLAINTEXT")
            login = ("--mechanism", mechanism, "--user", USER, "--password-file", str(file))
            file.write_text(PASSWORD)
            assert CliRunner().invoke(main, ["produce", "t", *listener, *login], input=mechanism).exit_code == 0
            expected += f"{mechanism}\n"
            assert CliRunner().invoke(main, ["consume", "t", *listener, *login]).stdout == expected
            file.write_text("wrong")
            assert CliRunner().invoke(main, ["consume", "t", *listener, *login]).exit_code == Exit.DENIED
