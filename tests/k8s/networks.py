"""The connections that NetworkPolicies allow between the pods of the manifests. Unknown names fail assertions."""

from tests.support.k8s.live import Json, labels_of, matches, port_names


def let_in(policies: list[Json], templates: dict[str, Json], asked: str) -> dict[str, set[str]]:
    """Return the pods that may connect to ``asked``, by the port's name."""
    found: dict[str, set[str]] = {}
    for rule in _rules(policies, templates[asked], "ingress"):
        for port in rule["ports"]:
            assert port["port"] in port_names(templates[asked])
            peers = rule.get("from", [{}])
            found.setdefault(port["port"], set()).update(who for peer in peers for who in _who(peer, templates))
    return found


def let_out(policies: list[Json], templates: dict[str, Json], asker: str) -> set[tuple[str, str]]:
    """Return the pods and ports to which ``asker`` may connect, including Services and outside hosts by HTTPS."""
    found = set()
    for rule in _rules(policies, templates[asker], "egress"):
        for peer in rule["to"]:
            if "podSelector" not in peer:
                assert {port["port"] for port in rule["ports"]} <= {53, 443}
                continue
            for asked in _who(peer, templates):
                assert {port["port"] for port in rule["ports"]} <= {*port_names(templates[asked])}
                found |= {(asked, port["port"]) for port in rule["ports"]}
    return found


def _rules(policies: list[Json], template: Json, kind: str) -> list[Json]:
    selecting = [policy["spec"] for policy in policies if matches(policy["spec"]["podSelector"], labels_of(template))]
    assert any(kind in [each.lower() for each in spec["policyTypes"]] for spec in selecting)
    return [rule for spec in selecting for rule in spec.get(kind, [])]


def _who(peer: Json, templates: dict[str, Json]) -> set[str]:
    if not peer:
        return {"anybody"}
    if "namespaceSelector" in peer:
        [label] = peer["namespaceSelector"]["matchLabels"]
        return {label.removeprefix("kafscale.io/")}
    found = {name for name, template in templates.items() if matches(peer["podSelector"], labels_of(template))}
    assert found, f"nobody has the labels of {peer}"
    return found
