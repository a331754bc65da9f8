"""The server's certificate: issued by an authority of its own, renewed before it ends.

Both live in one Secret, so that several replicas serve the same and the API server trusts them by
one bundle. A new authority is added to the bundle while the old one still is in it.
"""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=3650)
AUTHORITY_LEFT = timedelta(days=365)
"""An authority with less life than this is replaced."""
LIFE = timedelta(days=90)
LEFT = timedelta(days=30)
"""A certificate with less life than this is renewed."""
BACKDATED = timedelta(minutes=5)
"""For clocks that are behind."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts: what to trust (newest authority first), the authority's key, own chain and key."""

    bundle: str
    authority_key: str
    certificate: str
    key: str

    def as_secret_data(self) -> dict[str, str]:
        """The `data` of a Secret."""
        texts = {
            "ca.crt": self.bundle,
            "ca.key": self.authority_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }
        return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def read_identity(data: dict[str, Any]) -> Identity | None:
    """Read the `data` of a Secret; None when something is missing or cannot be read."""
    try:
        texts = [
            base64.b64decode(data[name]).decode()
            for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
        ]
        found = Identity(*texts)
        _leaf(found)
        _authorities(found)
        serialization.load_pem_private_key(found.authority_key.encode(), None)
    except (KeyError, ValueError, TypeError):
        return None
    return found


def renewed(known: Identity | None, host_names: tuple[str, ...], now: datetime) -> Identity:
    """The identity to use: `known` itself while it is good for these names, else a newer one."""
    if known is None:
        return _issue(*_new_authority(now), "", host_names, now)
    authorities = _authorities(known)
    if authorities[0].not_valid_after_utc - now < AUTHORITY_LEFT:
        kept = "".join(_pem(one) for one in authorities if one.not_valid_after_utc > now)
        return _issue(*_new_authority(now), kept, host_names, now)
    leaf = _leaf(known)
    good = leaf.not_valid_after_utc - now >= LEFT and leaf.not_valid_before_utc <= now
    if good and set(_host_names(leaf)) >= set(host_names):
        return known
    key = serialization.load_pem_private_key(known.authority_key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return _issue(*_new_authority(now), known.bundle, host_names, now)
    rest = "".join(_pem(one) for one in authorities[1:] if one.not_valid_after_utc > now)
    return _issue(authorities[0], key, rest, host_names, now)


def _new_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"punctual-metrics-adapter-{now:%Y%m%d%H%M%S}")
    usage = _key_usage(signs=True)
    built = (
        _builder(name, name, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return built, key


def _issue(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    older: str,
    host_names: tuple[str, ...],
    now: datetime,
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in host_names])
    built = (
        _builder(_name(host_names[0][:64]), authority.subject, key, now, LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Identity(_pem(authority) + older, _private(authority_key), _pem(built), _private(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _authorities(known: Identity) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(known.bundle.encode())


def _leaf(known: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(known.certificate.encode())


def _host_names(leaf: x509.Certificate) -> list[str]:
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return found.value.get_values_for_type(x509.DNSName)


def utc_now() -> datetime:
    """Wall clock: certificates know no other."""
    return datetime.now(UTC)
