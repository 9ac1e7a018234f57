from services.operator.election import Election, Step
from services.operator.resources import Object

NOW = "2026-11-22T19:00:00.000000Z"


def stored(spec: Object, version: int = 1) -> Object:
    return {"metadata": {"name": "kafscale-operator", "resourceVersion": str(version)}, "spec": spec}


def test_a_lease_is_created_and_then_renewed_by_its_holder() -> None:
    election = Election("a", "kafscale-operator", 15)
    assert election.step(None, 0) is Step.CREATE
    made = election.held(None, NOW)
    assert "resourceVersion" not in made["metadata"]
    assert made["spec"]["leaseTransitions"] == 0
    lease = stored(made["spec"])
    assert election.step(lease, 100) is Step.RENEW
    later = election.held(lease, "later")
    assert (later["spec"]["acquireTime"], later["spec"]["renewTime"]) == (NOW, "later")
    assert later["metadata"]["resourceVersion"] == "1"
    assert later["spec"]["leaseTransitions"] == 0


def test_a_candidate_takes_the_lease_after_no_renewal_for_its_duration() -> None:
    leader, other = Election("a", "x", 15), Election("b", "x", 99)
    lease = stored(leader.held(None, NOW)["spec"])
    assert [other.step(lease, now) for now in (100, 114.9)] == [Step.WAIT, Step.WAIT]
    lease = stored(leader.held(lease, "later")["spec"])
    assert [other.step(lease, now) for now in (115, 129.9, 130)] == [Step.WAIT, Step.WAIT, Step.TAKE]
    taken = other.held(lease, "much later")["spec"]
    assert (taken["holderIdentity"], taken["acquireTime"], taken["leaseTransitions"]) == ("b", "much later", 1)


def test_a_released_lease_is_taken_immediately() -> None:
    leader, other = Election("a", "x", 15), Election("b", "x", 15)
    lease = stored(leader.held(None, NOW)["spec"])
    assert other.step(lease, 0) is Step.WAIT
    given = leader.released(lease, "later")
    assert "holderIdentity" not in given["spec"]
    assert given["metadata"]["resourceVersion"] == "1"
    assert other.step(given, 1) is Step.TAKE
    assert other.held(given, "later")["spec"]["leaseTransitions"] == 1
