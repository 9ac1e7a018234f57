"""Certificates for servers of tests."""

from pathlib import Path

import trustme


def server_certificates(directory: Path) -> trustme.CA:
    """Write ca.pem of a new CA, and cert.pem and key.pem for 127.0.0.1, into the directory."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    (directory / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    return authority


def listener_settings(directory: Path, protocol: str = "SASL_SSL") -> dict[str, str]:
    """Return the settings of the only Kafka listener with these certificates."""
    return {
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": f"PLAINTEXT:{protocol}",
        "KAFSCALE_TLS_CERT_FILE": str(directory / "cert.pem"),
        "KAFSCALE_TLS_KEY_FILE": str(directory / "key.pem"),
    }
