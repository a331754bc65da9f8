"""End-to-end tests: the product as a user installs it, on a cluster that runs pods."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from charts.tools.helm import HelmError, helm_program
from e2e.evidence import look_around
from e2e.release import RESTRICTED, Release
from e2e.service import Service
from testcluster.cluster import Cluster
from testcluster.fixtures import cluster, control_plane, pod_cluster

__all__ = ["cluster", "control_plane", "pod_cluster"]

HERE = Path(__file__).resolve().parent
SECONDS = 480
FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and give it the time that pods need."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kind)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test what the cluster says at that moment."""
    report = yield
    values = getattr(item, "funcargs", {})
    if report.failed and isinstance(found := values.get("release"), Release):
        service = values.get("service")
        report.sections.append(("cluster", look_around(found.cluster, service)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    for line in terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """What is put in here is printed at the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, [])


@pytest.fixture(scope="session")
def release(pod_cluster: Cluster, figures: list[str]) -> Iterator[Release]:
    """The chart, installed for the whole run."""
    try:
        helm_program()
    except HelmError as error:
        pytest.fail(str(error), pytrace=False)
    found = Release(pod_cluster)
    found.prepare()
    figures.append(f"helm install: {found.install():.1f} s")
    yield found
    found.remove()


@pytest.fixture
def service(request: pytest.FixtureRequest, release: Release) -> Iterator[Service]:
    """The sample pool and its policy, ready, in a namespace of the test's own."""
    namespace = release.cluster.create_namespace(request.node.name, RESTRICTED)
    found = Service(release.cluster.kubectl(namespace))
    found.apply()
    found.wait_ready()
    yield found
    release.cluster.delete_namespace(namespace)
