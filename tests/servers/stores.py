"""An etcd and a MinIO for running KafScale's services by hand.

``python -m tests.servers.stores DIRECTORY`` creates DIRECTORY for their data, writes the settings for the services to
DIRECTORY/settings.env, which a shell can source, and runs until SIGINT or SIGTERM.
"""

import shlex
import signal
import sys
from pathlib import Path

from tests.servers.etcd import running_etcd
from tests.servers.minio import running_minio

SETTINGS = "settings.env"
_BUCKET = "kafscale"


def main(directory: Path) -> None:
    directory.mkdir(parents=True)
    settings_file = directory / SETTINGS
    stops = {signal.SIGINT, signal.SIGTERM}
    with running_etcd(directory) as etcd, running_minio(directory) as minio:
        # Only now, because the servers would inherit the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        settings = {**minio.broker_settings(_BUCKET), "KAFSCALE_ETCD_ENDPOINTS": ",".join(etcd.endpoints)}
        written = directory / f"{SETTINGS}.new"
        written.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()))
        written.rename(settings_file)
        print(f"etcd and MinIO are up; the settings that lead to them are in {settings_file}", flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.servers.stores DIRECTORY")
    try:
        main(Path(sys.argv[1]))
    except FileExistsError:
        raise SystemExit(f"{sys.argv[1]} already exists; each run needs a new directory") from None
