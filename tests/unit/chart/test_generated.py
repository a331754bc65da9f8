"""Everything generated is what its source gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from charts.tools.generate import FILES, ROOT


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_up_to_date(path: Path) -> None:
    assert path.read_text() == FILES[path](), "write it anew: make chart"
