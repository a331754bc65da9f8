"""The other programs of the benchmark: nginx, HAProxy, LiteLLM, and a bare aiohttp proxy.

Each runs with one worker in front of the same upstream. nginx and HAProxy come from Debian
(`apt-get install nginx haproxy`). LiteLLM comes from PyPI into a virtual environment of its own
under the cache folder ($PUNCTUAL_CACHE, default ~/.cache/punctual), because it needs other
versions of our libraries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from punctual_lab.policies import PREDICTIVE, build_policy, write_policy
from punctual_lab.processes import ProcessError, find_free_port

if TYPE_CHECKING:
    from punctual_lab.processes import ServerProcess, Stack

LITELLM_REQUIREMENT = "litellm[proxy]==1.92.0"
INSTALL_SECONDS = 900.0

NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  upstream model {{ server {upstream}; keepalive 128; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

HAPROXY_CONFIG = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  default_backend model
backend model
  server upstream {upstream}
"""


class MissingProgramError(RuntimeError):
    """A program of the comparison is not installed; the message says how to get it."""


def cache_folder() -> Path:
    """Return $PUNCTUAL_CACHE, or ~/.cache/punctual."""
    given = os.environ.get("PUNCTUAL_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "punctual"


def start_upstream(stack: Stack) -> ServerProcess:
    """Start the model server that answers at once."""
    port = find_free_port()
    argv = [sys.executable, "-m", "punctual_lab.bench.upstream", str(port)]
    return stack.launch("upstream", argv, port=port)


def start_punctual(stack: Stack, upstream: str, folder: Path) -> ServerProcess:
    """Start the gateway with a Predictive policy."""
    policy = build_policy(PREDICTIVE, deadline_ms=60_000)
    path = write_policy(folder / "punctual" / "policy.yaml", policy)
    return stack.start_gateway(path, [upstream], name="punctual")


def start_bare_proxy(stack: Stack, upstream: str, folder: Path) -> ServerProcess:  # noqa: ARG001
    """Start the bare aiohttp proxy."""
    port = find_free_port()
    argv = [sys.executable, "-m", "punctual_lab.bench.bare_proxy", str(port), upstream]
    return stack.launch("bare-proxy", argv, port=port)


def start_nginx(stack: Stack, upstream: str, folder: Path) -> ServerProcess:
    """Start nginx with one worker. Raises MissingProgramError."""
    program = find_debian_program("nginx")
    port, place = find_free_port(), folder / "nginx"
    place.mkdir(parents=True, exist_ok=True)
    config = place / "nginx.conf"
    address = urlsplit(upstream).netloc
    config.write_text(NGINX_CONFIG.format(folder=place.resolve(), port=port, upstream=address))
    argv = [program, "-c", str(config.resolve()), "-p", str(place.resolve())]
    return stack.launch("nginx", argv, port=port)


def start_haproxy(stack: Stack, upstream: str, folder: Path) -> ServerProcess:
    """Start HAProxy with one thread. Raises MissingProgramError."""
    program = find_debian_program("haproxy")
    port, place = find_free_port(), folder / "haproxy"
    place.mkdir(parents=True, exist_ok=True)
    config = place / "haproxy.cfg"
    config.write_text(HAPROXY_CONFIG.format(port=port, upstream=urlsplit(upstream).netloc))
    return stack.launch("haproxy", [program, "-db", "-f", str(config)], port=port)


def start_litellm(stack: Stack, upstream: str, folder: Path) -> ServerProcess:
    """Start LiteLLM's proxy with one worker. Raises MissingProgramError if it cannot be
    installed.
    """
    program = install_litellm()
    port, place = find_free_port(), folder / "litellm"
    place.mkdir(parents=True, exist_ok=True)
    config = place / "config.yaml"
    config.write_text(json.dumps(build_litellm_config(upstream)))
    return stack.launch(
        "litellm",
        [str(program), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"],
        port=port,
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        ready_seconds=120.0,
        ready_path="/health/liveliness",
    )


def build_litellm_config(upstream: str) -> dict[str, object]:
    """Build LiteLLM's configuration: one text-completion model, no call home, no retries."""
    parameters = {
        "model": "text-completion-openai/lab",
        "api_base": f"{upstream}/v1",
        "api_key": "none",
    }
    return {
        "model_list": [{"model_name": "lab", "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }


def find_debian_program(name: str) -> str:
    """Return the path of a Debian program. Raises MissingProgramError."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        msg = f"{name} is not installed; on Debian: apt-get install {name}"
        raise MissingProgramError(msg)
    return found


def install_litellm() -> Path:
    """Return LiteLLM's program, installed into its own environment at first use (minutes)."""
    home = cache_folder() / f"litellm-{LITELLM_REQUIREMENT.rpartition('=')[2]}"
    program = home / "bin" / "litellm"
    done = home / "installed"
    if done.exists():
        return program
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", LITELLM_REQUIREMENT]
    try:
        subprocess.run(install, check=True, timeout=INSTALL_SECONDS, capture_output=True, text=True)
    except (subprocess.SubprocessError, OSError) as error:
        detail = str(getattr(error, "stderr", "") or error).strip()[-500:]
        msg = f"LiteLLM ({LITELLM_REQUIREMENT}) could not be installed into {home}: {detail}"
        raise MissingProgramError(msg) from error
    done.touch()
    return program


STARTERS = {
    "haproxy": start_haproxy,
    "nginx": start_nginx,
    "bare aiohttp proxy": start_bare_proxy,
    "punctual": start_punctual,
    "litellm": start_litellm,
}


def start_others(
    stack: Stack, upstream: str, folder: Path, names: list[str]
) -> tuple[dict[str, ServerProcess], dict[str, str]]:
    """Start the named programs; return those that run, and why the others do not."""
    running: dict[str, ServerProcess] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            running[name] = STARTERS[name](stack, upstream, folder)
        except (MissingProgramError, ProcessError) as error:
            missing[name] = str(error)
    return running, missing
