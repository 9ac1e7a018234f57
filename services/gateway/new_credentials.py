"""Credentials as requests give them, for the Kafka API and for the Admin service."""

from kio.schema.errors import ErrorCode

from kafscale.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, Mechanism, credential
from services.gateway.owners.errors import RefusedPart


def new_credential(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential for a salted password. Raises RefusedPart."""
    if iterations < LEAST_ITERATIONS:
        raise RefusedPart(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise RefusedPart(ErrorCode.unacceptable_credential, "Too many iterations")
    return credential(mechanism, salted, salt, iterations)
