"""By which hosts browsers may reach the console, and from which origins. No IO.

A page of a foreign site can send requests to the console's address. It cannot choose the headers ``Host`` and
``Origin``: the browser sets them from the address bar. A foreign name that resolves to the console's address (DNS
rebinding) is in both of them.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping

_AUTHORITY = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
_LOCAL = "localhost"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL


def is_accepted(authority: str, names: Collection[str]) -> bool:
    """Whether ``authority``, a value of the header ``Host``, is an IP address, localhost or one of ``names``."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return False
    host = (found["six"] or found["host"]).lower()
    if host == _LOCAL or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_same_origin(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether a page of the console itself sent a request, by its ``Origin``. Without one, it did not."""
    return headers.get("origin") == f"{scheme}://{headers.get('host')}"
