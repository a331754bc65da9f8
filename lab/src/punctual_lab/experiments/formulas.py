"""Closed forms of queueing theory: mean waits in seconds, probabilities as shares.

Symbols: lambda arrivals per second, S service time in seconds, rho = lambda * E[S] / c, c servers.
Sources: Kleinrock, Queueing Systems I (1975), sections 3.2, 3.6 and 5.7; Erlang (1917).
"""

from __future__ import annotations

import math


def mm1_wait(rate: float, service: float) -> float:
    """M/M/1: E[W] = rho * E[S] / (1 - rho), time in the queue."""
    rho = _utilisation(rate * service)
    return rho * service / (1 - rho)


def pollaczek_khinchine_wait(rate: float, service: float, service_squared: float) -> float:
    """M/G/1: E[W] = lambda * E[S^2] / (2 * (1 - rho)), time in the queue."""
    rho = _utilisation(rate * service)
    return rate * service_squared / (2 * (1 - rho))


def mm1k_blocking(rho: float, places: int) -> float:
    """M/M/1/K: share that finds all `places` (K, the served one included) taken; any rho > 0."""
    if math.isclose(rho, 1.0):
        return 1 / (places + 1)
    return (1 - rho) * rho**places / (1 - rho ** (places + 1))


def mm1k_wait(rate: float, service: float, places: int) -> float:
    """M/M/1/K: mean time in the queue of those who were let in, by Little's law."""
    rho = rate * service
    weights = [rho**n for n in range(places + 1)]
    total = math.fsum(weights)
    waiting = math.fsum((n - 1) * weight for n, weight in enumerate(weights) if n > 1) / total
    return waiting / (rate * (1 - weights[-1] / total))


def erlang_c(rate: float, service: float, servers: int) -> float:
    """M/M/c: share of arrivals that have to wait."""
    offered = rate * service
    rho = _utilisation(offered / servers)
    below = math.fsum(offered**n / math.factorial(n) for n in range(servers))
    top = offered**servers / math.factorial(servers) / (1 - rho)
    return top / (below + top)


def mmc_wait(rate: float, service: float, servers: int) -> float:
    """M/M/c: E[W] = C(c, lambda * E[S]) * E[S] / (c * (1 - rho))."""
    rho = rate * service / servers
    return erlang_c(rate, service, servers) * service / (servers * (1 - rho))


def _utilisation(rho: float) -> float:
    if not 0 < rho < 1:
        raise ValueError(f"utilisation must be above 0 and below 1 for a steady state, got {rho}")
    return rho
