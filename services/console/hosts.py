"""By which hosts and from which origins browsers may use the console. No IO.

A page of a foreign site can send requests to the console's address. It cannot choose the headers ``Host`` and
``Origin``: the browser sets them from the address bar. A foreign name that resolves to the console's address (DNS
rebinding) is in both of them.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_AUTHORITY = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
_LOCAL = "localhost"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL


@dataclass(frozen=True, slots=True)
class Origins:
    """``scheme``: http or https, by which the console serves browsers. ``names``: the DNS names by which they reach it.

    ``public``: the origin at which a proxy serves the console, as browsers write it; empty: there is no proxy.
    """

    scheme: str
    names: Collection[str] = ()
    public: str = ""

    def accepts(self, authority: str) -> bool:
        """Whether ``authority``, a value of ``Host``, is an IP address, localhost or a name of the console."""
        found = _AUTHORITY.fullmatch(authority)
        if found is None:
            return False
        host = (found["six"] or found["host"]).lower()
        if host == _LOCAL or host in self.names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def is_own(self, headers: Mapping[str, str]) -> bool:
        """Whether a page of the console itself sent a request, by its ``Origin``. Without one, it did not.

        A page that a proxy serves by https is never accepted by http.
        """
        origin, authority = headers.get("origin"), headers.get("host", "")
        if self.public and self.public in (origin, f"http://{authority}", f"https://{authority}"):
            return origin == self.public
        return origin == f"{self.scheme}://{authority}"
