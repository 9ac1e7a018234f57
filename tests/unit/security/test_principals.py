"""Principals and the rules that map the names in certificates to them."""

import pytest

from kafscale.security.principals import NameRules, NoRuleApplies, Principal, user

DN = "CN=Ann,OU=Pay/Roll,O=Example,C=DE"


def test_a_principal_has_a_kind_and_a_name() -> None:
    assert Principal.parse("User:CN=a:b") == user("CN=a:b")
    assert str(user("ann")) == "User:ann"
    for wrong in ("ann", "User:", ":ann", ""):
        with pytest.raises(ValueError, match="is not a principal"):
            Principal.parse(wrong)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DN),
        ("RULE:^CN=(.*?),OU=.*$/$1/", "Ann"),
        ("RULE:^CN=(.*?),OU=.*$/$1/L", "ann"),
        ("RULE:^CN=(.*?),.*$/$1@example/U", "ANN@EXAMPLE"),
        (r"RULE:^.*OU=(\w+)\/(\w+),.*$/$2\/$1/L", "roll/pay"),
        (r"RULE:^CN=x.*$/x/, RULE:^CN=(\w+),.*$/\$1-$1/ ,DEFAULT", "$1-Ann"),
        ("RULE:^CN=$/x/,DEFAULT", DN),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, name: str) -> None:
    assert NameRules(rules).user_of(DN) == user(name)


def test_a_name_without_a_rule_is_refused() -> None:
    with pytest.raises(NoRuleApplies, match="CN=Ann"):
        NameRules("RULE:^CN=Bob.*$/bob/").user_of(DN)


@pytest.mark.parametrize(
    "rules", ["", "default", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT DEFAULT"]
)
def test_faulty_rules_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"RULE|regular expression|groups"):
        NameRules(rules)
