"""The operator's rights: file, documentation and code are one."""

from __future__ import annotations

from pathlib import Path

from punctual_operator.kinds import WATCHED
from punctual_operator.rbac import RULES, build_manifests, gateway_table, table
from punctual_operator.resources.access import GATEWAY_RULES
from punctual_operator.yaml_text import yaml_documents

ROOT = Path(__file__).parents[3]


def test_manifest_is_what_the_rules_give() -> None:
    path = ROOT / "manifests" / "rbac.yaml"
    assert path.read_text() == yaml_documents(build_manifests()), (
        "write it anew: python -m punctual_operator.rbac > manifests/rbac.yaml"
    )


def test_documented_reasons_are_those_of_the_rules() -> None:
    text = (ROOT / "docs" / "rbac.md").read_text()
    parts = [part.split("<!-- end -->")[0] for part in text.split("<!-- operator -->\n")[1:]]
    assert parts == [table()]
    parts = [part.split("<!-- end -->")[0] for part in text.split("<!-- gateway -->\n")[1:]]
    assert parts == [gateway_table()]


def test_no_rule_has_a_wildcard_or_reaches_secrets() -> None:
    for rule in RULES:
        assert "*" not in {rule.group, rule.resource, *rule.verbs}
        assert rule.resource != "secrets"
        assert rule.reason


def test_each_watched_kind_may_be_listed_and_watched() -> None:
    rules = {(rule.group, rule.resource): set(rule.verbs) for rule in RULES}
    for kind in WATCHED:
        assert {"list", "watch"} <= rules[kind.group, kind.plural]


def test_operator_has_every_right_that_it_grants() -> None:
    rules = {(rule.group, rule.resource): set(rule.verbs) for rule in RULES}
    for granted in GATEWAY_RULES:
        for group in granted["apiGroups"]:
            for resource in granted["resources"]:
                assert set(granted["verbs"]) <= rules[group, resource]
