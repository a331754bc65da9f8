"""A control plane of its own: etcd, API server, controller manager and scheduler as processes.

CRDs with CEL, server-side apply, RBAC, quotas, pod security, garbage collection, the HPA controller
and API aggregation are the real ones. There is no node: pods stay Pending, or appear as a test
writes their status. All listens on 127.0.0.1, on free ports, so that several run side by side.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import ssl
import time
from pathlib import Path

from testcluster import audit
from testcluster.binaries import control_plane_programs
from testcluster.kubeconfig import certificate_user, server_cluster, write_kubeconfig
from testcluster.pki import build_pki
from testcluster.process import Guardian, Process, free_port

START_SECONDS = 60.0
START_TRIES = 3

# The HPA controller acts within seconds, where a cluster's defaults take minutes.
QUICK_SCALING = (
    "--horizontal-pod-autoscaler-sync-period=2s",
    "--horizontal-pod-autoscaler-downscale-stabilization=5s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
)


class ControlPlane:
    """A control plane in a folder of its own.

    `stays` leaves it running when this process ends, for `stop` in a later one. `scaling` are the
    flags of the HPA controller: `()` for the defaults of a cluster.
    """

    def __init__(
        self, folder: Path, *, stays: bool = False, scaling: tuple[str, ...] = QUICK_SCALING
    ) -> None:
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "admin.kubeconfig"
        self.port = 0
        self.audit = audit.AuditLog(self.folder / "audit.log", self._get)
        self._stays = stays
        self._scaling = scaling
        self.pki = self.folder / "pki"
        self._processes: dict[str, Process] = {}
        self._guardian: Guardian | None = None

    def start(self) -> None:
        """Start all programs and return when the cluster serves; about 4 s on two cores.

        Raises `MissingProgramsError` before anything is started, and `RuntimeError` with the end of
        the log when a program does not come up.
        """
        programs = control_plane_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        build_pki(self.pki)
        (self.folder / "audit-policy.json").write_text(json.dumps(audit.POLICY))
        if not self._stays:
            self._guardian = Guardian(self.folder)
        for attempt in range(START_TRIES):
            self._prepare(programs)
            try:
                self._start_all()
            except RuntimeError:
                port_taken = "address already in use" in self._tails()
                self.stop()
                if attempt + 1 == START_TRIES or not port_taken:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Stop all programs and remove the stored objects; logs and certificates stay."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            process = self._processes.get(name) or Process(self.folder, [name])
            process.stop(kill=name == "etcd")
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    def stop_api_server(self, *, kill: bool = False) -> None:
        """Stop the API server; clients find their connections closed and the port refused."""
        self._processes["kube-apiserver"].stop(kill=kill)

    def start_api_server(self) -> None:
        """Start the API server again, on the same port, and return when it serves."""
        self._processes["kube-apiserver"].start()
        self._wait_for("/readyz", self._processes["kube-apiserver"])

    def restart_api_server(self, *, kill: bool = False) -> None:
        """Stop and start the API server."""
        self.stop_api_server(kill=kill)
        self.start_api_server()

    def pause_api_server(self) -> None:
        """Freeze the API server: connections stay open and nothing answers."""
        self._processes["kube-apiserver"].signal(signal.SIGSTOP)

    def resume_api_server(self) -> None:
        """Let a frozen API server go on, and return when it serves."""
        self._processes["kube-apiserver"].signal(signal.SIGCONT)
        self._wait_for("/readyz", self._processes["kube-apiserver"])

    @property
    def programs_running(self) -> list[str]:
        """The names of the programs that run now."""
        names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        known = (self._processes.get(name) or Process(self.folder, [name]) for name in names)
        return [process.name for process in known if process.pid() is not None]

    def _prepare(self, programs: dict[str, Path]) -> None:
        self.port = free_port()
        etcd, peer = free_port(), free_port()
        authority = self.pki / "ca.crt"
        cluster = server_cluster(f"https://127.0.0.1:{self.port}", authority)
        for name in ("admin", "controller-manager", "scheduler"):
            user = certificate_user(self.pki, name)
            write_kubeconfig(self.folder / f"{name}.kubeconfig", cluster, user)
        flags = {
            "etcd": self._etcd_flags(etcd, peer),
            "kube-apiserver": self._api_server_flags(etcd),
            "kube-controller-manager": self._controller_manager_flags(),
            "kube-scheduler": self._scheduler_flags(),
        }
        self._processes = {
            name: Process(self.folder, [str(programs[name]), *flags[name]]) for name in programs
        }

    def _start_all(self) -> None:
        self._processes["etcd"].start()
        self.start_api_server()
        self._processes["kube-controller-manager"].start()
        self._processes["kube-scheduler"].start()
        # made by the controller manager: from here on a pod can be created
        self._wait_for(
            "/api/v1/namespaces/default/serviceaccounts/default",
            self._processes["kube-controller-manager"],
        )

    def _etcd_flags(self, port: int, peer: int) -> list[str]:
        client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
        ]

    def _api_server_flags(self, etcd: int) -> list[str]:
        pki = self.pki
        return [
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=198.19.0.0/16",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
            f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
            f"--audit-policy-file={self.folder / 'audit-policy.json'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            "--audit-log-mode=blocking",
            # else a stop waits a minute for watches to end by themselves
            "--shutdown-watch-termination-grace-period=1s",
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.folder / 'controller-manager.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.pki / 'sa.key'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            # its own default of 20 requests a second makes the start take 5 s longer
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            *self._scaling,
        ]

    def _scheduler_flags(self) -> list[str]:
        kubeconfig = self.folder / "scheduler.kubeconfig"
        return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]

    def _wait_for(self, path: str, process: Process) -> None:
        end = time.monotonic() + START_SECONDS
        while not self._get(path):
            if process.pid() is None:
                raise RuntimeError(f"{process.name} ended; {process.log}:\n{process.tail()}")
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{process.name} must serve {path} within {START_SECONDS:.0f} s; "
                    f"{process.log}:\n{process.tail()}"
                )
            time.sleep(0.1)

    def _get(self, path: str) -> bool:
        """Ask the API server as the admin; True when it answers 200."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=10
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _tails(self) -> str:
        return "\n".join(process.tail(50) for process in self._processes.values())
