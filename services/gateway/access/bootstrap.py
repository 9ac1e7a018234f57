"""The first user, from whose settings a new cluster lets its administrator in."""

import secrets

import structlog
import trio

from kafscale.config.client_security import ClientSecuritySettings
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.users import Credentials, UserCatalog
from kafscale.security.scram import LEAST_ITERATIONS, SALT_BYTES, Mechanism, credential, salted_password

_log = structlog.get_logger(__name__)


async def create_first_user(settings: ClientSecuritySettings, users: UserCatalog) -> None:
    """Create the user of KAFSCALE_BOOTSTRAP_USER unless it exists. Retries until the metadata store answers.

    Raises a ConfigError if the file with the password cannot be read.
    """
    name = settings.bootstrap_user
    if name is None or name in users.users:
        return
    made = await trio.to_thread.run_sync(_credentials, settings.first_password())
    outage = Outage("first user not created, retrying", first=0.1, longest=2.0)
    while True:
        try:
            await users.change(name, lambda found: found or made)
        except STORE_FAILURES as error:
            await outage.pause(error)
        else:
            _log.info("first user exists", user=name)
            return


def _credentials(password: bytes) -> Credentials:
    made = {}
    for mechanism in Mechanism:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, LEAST_ITERATIONS)
        made[mechanism] = credential(mechanism, salted, salt, LEAST_ITERATIONS)
    return made
