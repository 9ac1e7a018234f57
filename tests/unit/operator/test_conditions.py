from services.operator.conditions import Condition, Truth, merged
from services.operator.resources import Object, wants_work


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    true = Condition("Ready", Truth.TRUE, "Available", "yes")
    first = merged([], [true], generation=1, now="t1")
    again = merged(first, [Condition("Ready", Truth.TRUE, "Other", "still")], generation=2, now="t2")
    assert (again[0]["lastTransitionTime"], again[0]["reason"], again[0]["observedGeneration"]) == ("t1", "Other", 2)
    other = merged(again, [Condition("Ready", Truth.FALSE, "Gone", "x" * 5000)], generation=2, now="t3")
    assert other[0]["lastTransitionTime"] == "t3"
    assert len(other[0]["message"]) == 1024


def test_a_change_of_the_status_alone_causes_no_action() -> None:
    one: Object = {"metadata": {"uid": "1", "generation": 1, "resourceVersion": "1"}, "status": {}}
    two: Object = {"metadata": {"uid": "1", "generation": 1, "resourceVersion": "2"}, "status": {"partitions": 1}}
    assert not wants_work(one, two)
    assert wants_work(None, one)
    assert wants_work(one, None)
    assert wants_work(one, {**two, "metadata": {**two["metadata"], "generation": 2}})
    assert wants_work(one, {**two, "metadata": {**two["metadata"], "deletionTimestamp": "now"}})
    assert wants_work(one, {**two, "metadata": {**two["metadata"], "uid": "2"}})
