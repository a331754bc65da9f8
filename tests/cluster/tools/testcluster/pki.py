"""Keys and certificates of a test cluster, made by openssl."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

SERVER_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
    "IP:198.19.0.1",
)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def build_pki(folder: Path) -> None:
    """Write all keys and certificates of a control plane into `folder`.

    Two authorities, for clients and for the front proxy: with one, whoever has a client certificate
    could speak to an aggregated API in the name of anyone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _authority(folder, "ca", "kubernetes")
    _authority(folder, "front-proxy-ca", "front-proxy-ca")
    issue(folder, "apiserver", "ca", "/CN=kube-apiserver", server_names=SERVER_NAMES)
    issue(folder, "admin", "ca", "/O=system:masters/CN=kubernetes-admin")
    issue(folder, "controller-manager", "ca", "/CN=system:kube-controller-manager")
    issue(folder, "scheduler", "ca", "/CN=system:kube-scheduler")
    issue(folder, "front-proxy-client", "front-proxy-ca", "/CN=front-proxy-client")
    _openssl("genpkey", "-algorithm", "RSA", "-out", str(folder / "sa.key"))
    _openssl("pkey", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub"))


def issue(
    folder: Path, name: str, authority: str, subject: str, *, server_names: tuple[str, ...] = ()
) -> None:
    """Write `name`.crt and `name`.key, signed by `authority`; for a server if it has names."""
    usage = "serverAuth" if server_names else "clientAuth"
    extensions = ["basicConstraints=CA:false", f"extendedKeyUsage={usage}"]
    extensions.append("keyUsage=critical,digitalSignature,keyEncipherment")
    if server_names:
        extensions.append(f"subjectAltName={','.join(server_names)}")
    key, certificate = str(folder / f"{name}.key"), str(folder / f"{name}.crt")
    signer = ["-CA", str(folder / f"{authority}.crt"), "-CAkey", str(folder / f"{authority}.key")]
    with tempfile.TemporaryDirectory() as scratch:
        request, options = Path(scratch) / "csr", Path(scratch) / "ext"
        options.write_text("\n".join(extensions))
        _openssl("req", *KEY, "-subj", subject, "-keyout", key, "-out", str(request))
        _openssl(
            *("x509", "-req", "-in", str(request), *signer, "-CAcreateserial", "-days", "365"),
            *("-extfile", str(options), "-out", certificate),
        )


def _authority(folder: Path, name: str, common_name: str) -> None:
    _openssl(
        *("req", "-x509", *KEY, "-days", "365", "-subj", f"/CN={common_name}"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
    )


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
