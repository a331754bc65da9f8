"""Selectors, quantities, identities, rights and certificates of the metrics adapter."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from multidict import CIMultiDict

from punctual_operator.adapter import manifests, shapes
from punctual_operator.adapter.access import Access, build_review
from punctual_operator.adapter.certificates import Identity, read_identity, renewed
from punctual_operator.adapter.identity import FrontProxy, User, read_front_proxy
from punctual_operator.adapter.registration import Owner, read_registration
from punctual_operator.adapter.selector import SelectorError, parse_selector
from punctual_operator.adapter.series import read_signals
from punctual_operator.adapter.settings import parse_settings
from punctual_operator.yaml_text import yaml_documents

LABELS = {"policy": "gpt2", "model": "small"}
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ("", True),
        ("policy=gpt2", True),
        ("policy==gpt2,model=small", True),
        ("policy!=gpt2", False),
        ("policy in (a, gpt2)", True),
        ("policy notin (a,gpt2),model=small", False),
        ("policy", True),
        ("!policy", False),
        ("!region", True),
        ("region", False),
        ("region!=eu", True),
        ("punctual.dev/policy=x", False),
        ("region notin (eu)", True),
    ],
)
def test_selector_holds_as_the_api_server_reads_it(selector: str, holds: bool) -> None:
    assert parse_selector(selector)(LABELS) is holds


@pytest.mark.parametrize("selector", ["a b", "=x", "a in b", "a=b=c", "a in (ü)", "a>1"])
def test_selector_that_cannot_be_read_is_refused(selector: str) -> None:
    with pytest.raises(SelectorError, match="must be"):
        parse_selector(selector)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (1.0, "1"), (0.7, "700m"), (4.8, "4800m"), (0.0001, "1m"), (1234.5, "1234500m"),
     (0.1 + 0.2, "300m"), (9.2e15, "9200000000000000")],
)  # fmt: skip
def test_quantity_has_thousandths(value: float, written: str) -> None:
    assert shapes.quantity(value) == written


def test_numbers_that_are_no_load_are_left_out() -> None:
    given = {"a": 1, "b": -0.1, "c": float("nan"), "d": float("inf"), "e": 1e300, "f": True,
             "g": "1", "h": None, "i": 0.0}  # fmt: skip
    assert read_signals(given) == {"a": 1.0, "i": 0.0}
    assert read_signals(None) == {}


PROXY = FrontProxy("PEM", ("front-proxy-client",))
PEER = {"subject": ((("commonName", "front-proxy-client"),),)}


def test_front_proxy_names_the_user() -> None:
    headers = CIMultiDict(
        [
            ("X-Remote-User", "eve"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", "b"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Extra-Example.com%2fScopes", "one"),
        ]
    )
    user = PROXY.identify(PEER, headers)
    assert user == User("eve", ("a", "b"), "7", (("example.com/scopes", ("one",)),))


@pytest.mark.parametrize(
    "peer", [None, {}, {"subject": ((("commonName", "somebody"),),)}, {"subject": ()}]
)
def test_nobody_else_names_a_user(peer: dict[str, Any] | None) -> None:
    assert PROXY.identify(peer, CIMultiDict({"X-Remote-User": "eve"})) is None


def test_any_name_will_do_where_none_is_listed() -> None:
    peer = {"subject": ((("commonName", "x"),),)}
    assert FrontProxy("PEM").identify(peer, CIMultiDict({"X-Remote-User": "eve"}))


def test_front_proxy_without_a_user_is_nobody() -> None:
    assert PROXY.identify(PEER, CIMultiDict({"X-Remote-Group": "system:masters"})) is None


def test_front_proxys_settings_are_read() -> None:
    data = {
        "requestheader-client-ca-file": "PEM\n",
        "requestheader-allowed-names": json.dumps(["a"]),
        "requestheader-username-headers": json.dumps(["X-User"]),
    }
    assert read_front_proxy(data) == FrontProxy("PEM", ("a",), ("X-User",))
    with pytest.raises(ValueError, match="must hold `requestheader-client-ca-file`"):
        read_front_proxy({})
    with pytest.raises(ValueError, match="must be a list of names"):
        read_front_proxy(data | {"requestheader-allowed-names": '"a"'})


class Reviews:
    """Counts reviews; allows what is listed."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed, self.asked = set(allowed), list[tuple[str, str]]()
        self.now = 0.0

    async def review(self, review: dict[str, Any]) -> bool:
        attributes = review["spec"]["resourceAttributes"]
        self.asked.append((attributes["namespace"], attributes["resource"]))
        return self.asked[-1] in self.allowed

    def access(self) -> Access:
        return Access(self.review, lambda: self.now)


async def test_user_who_may_read_everything_costs_one_review_a_minute() -> None:
    reviews = Reviews(("", "*"))
    access = reviews.access()
    for number in range(200):
        assert await access.allows(User("hpa"), f"ns{number}", "m")
    assert len(reviews.asked) == 1
    reviews.now = 61.0
    assert await access.allows(User("hpa"), "ns", "m")
    assert len(reviews.asked) == 2


async def test_user_is_allowed_what_the_api_server_allows() -> None:
    reviews = Reviews(("mine", "m"))
    access = reviews.access()
    assert await access.allows(User("eve"), "mine", "m")
    assert not await access.allows(User("eve"), "yours", "m")
    assert not await access.allows(User("eve"), "mine", "other")


async def test_decision_is_asked_anew_after_a_while() -> None:
    reviews = Reviews(("mine", "m"))
    access = reviews.access()
    assert await access.allows(User("eve"), "mine", "m")
    reviews.allowed.clear()
    assert await access.allows(User("eve"), "mine", "m")
    reviews.now = 11.0
    assert not await access.allows(User("eve"), "mine", "m")


def test_review_says_all_that_is_known_of_the_user() -> None:
    spec = build_review(User("eve", ("a",), "7", (("k", ("v",)),)), "ns", "m")["spec"]
    assert spec["user"] == "eve"
    assert spec["uid"] == "7"
    assert spec["extra"] == {"k": ["v"]}
    assert spec["resourceAttributes"]["verb"] == "list"
    assert "uid" not in build_review(User("eve"), "ns", "m")["spec"]


NOW = datetime(2027, 1, 1, tzinfo=UTC)
NAMES = ("adapter.ns.svc", "adapter.ns")


def leaf_of(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.certificate.encode())


def authorities_of(identity: Identity) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(identity.bundle.encode())


def test_certificate_is_for_its_names_and_signed_by_its_authority() -> None:
    identity = renewed(None, NAMES, NOW)
    leaf, (authority,) = leaf_of(identity), authorities_of(identity)
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    assert leaf.not_valid_before_utc < NOW


def test_good_certificate_is_kept() -> None:
    identity = renewed(None, NAMES, NOW)
    assert renewed(identity, NAMES, NOW + timedelta(days=59)) is identity
    assert renewed(identity, NAMES[:1], NOW) is identity


def test_certificate_is_renewed_by_the_same_authority_before_it_ends() -> None:
    identity = renewed(None, NAMES, NOW)
    newer = renewed(identity, NAMES, NOW + timedelta(days=61))
    assert newer.bundle == identity.bundle
    assert newer.certificate != identity.certificate


def test_other_names_need_another_certificate() -> None:
    identity = renewed(None, NAMES, NOW)
    assert renewed(identity, (*NAMES, "else.ns.svc"), NOW).certificate != identity.certificate


def test_old_authority_is_trusted_until_it_ends() -> None:
    identity = renewed(None, NAMES, NOW)
    newer = renewed(identity, NAMES, NOW + timedelta(days=3300))
    first, second = authorities_of(newer)
    assert second == authorities_of(identity)[0]
    leaf_of(newer).verify_directly_issued_by(first)
    later = renewed(newer, NAMES, NOW + timedelta(days=3700))
    assert authorities_of(later) == [first]


def test_identity_survives_its_secret() -> None:
    identity = renewed(None, NAMES, NOW)
    assert read_identity(dict(identity.as_secret_data())) == identity


@pytest.mark.parametrize("change", [{"ca.key": None}, {"tls.crt": "AAAA"}, {"ca.crt": ""}])
def test_broken_secret_is_no_identity(change: dict[str, str | None]) -> None:
    data = renewed(None, NAMES, NOW).as_secret_data() | change
    assert read_identity({key: value for key, value in data.items() if value is not None}) is None


OURS = ("ns", "adapter", 443)


def registration(namespace: str = "ns", bundle: str = "UEVN", port: int = 443) -> dict[str, Any]:
    service = {"namespace": namespace, "name": "adapter", "port": port}
    return {"spec": {"service": service, "caBundle": bundle}}


def test_registration_has_one_owner() -> None:
    assert read_registration(None, OURS, "PEM").owner is Owner.NOBODY
    assert read_registration(registration(), OURS, "PEM").current
    assert not read_registration(registration(bundle="x"), OURS, "PEM").current
    assert not read_registration(registration(port=1), OURS, "PEM").current
    other = read_registration(registration("keda"), OURS, "PEM")
    assert (other.owner, other.holder) == (Owner.OTHER, "keda/adapter")
    assert read_registration({"spec": {}}, OURS, "PEM").owner is Owner.OTHER


def test_manifest_file_holds_what_the_code_says() -> None:
    written = (ROOT / "manifests" / "metrics-adapter.yaml").read_text()
    assert written == yaml_documents(manifests.build_manifests())


def test_rights_are_named_where_they_can_be() -> None:
    """Only lists and creations have no name: these cannot be limited to one."""
    for rule in (*manifests.cluster_rules(), *manifests.secret_rules()):
        unnamed = not rule.get("resourceNames")
        assert not unnamed or rule["verbs"] in (["list"], ["create"])


def test_settings_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    settings = parse_settings(["--namespace=x", "--poll-seconds=2", "--no-register"])
    assert (settings.namespace, settings.fresh, settings.register) == ("x", 6.0, False)
    assert settings.host_names[0] == "punctual-metrics-adapter.x.svc"
    for wrong in ("--port=x", "--port=70000", "--poll-seconds=0", "--hold-seconds=nan"):
        with pytest.raises(SystemExit):
            parse_settings([wrong])
    assert "must be seconds from 0.05 to 86400" in capsys.readouterr().err
