"""The metrics adapter as a process on a test cluster, and gateways for it to ask."""

from adapterstand.gateways import Gateways, Replica
from adapterstand.process import ACCOUNT, SYSTEM, AdapterProcess, install

__all__ = ["ACCOUNT", "SYSTEM", "AdapterProcess", "Gateways", "Replica", "install"]
