"""ExecuTorch's own tests of planning and emission, beside an import of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import executorch.exir
import pytest

FILES = (
    "tests/test_memory_planning.py",
    "tests/test_banked_memory_planning.py",
    "emit/test/test_emit.py",
)
# What they give without this package, with ExecuTorch 1.5.1 and torch 2.13.
WITHOUT = "173 passed, 2 skipped"
OPTIONS = ("-c", "/dev/null", "-p", "lower_faster")
RUN = """
import sys, pytest, pte_arenas.exporter, pte_arenas.emitter
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_upstream_tests_give_the_same(tmp_path: Path) -> None:
    exir = Path(executorch.exir.__file__).parent
    run = subprocess.run(
        [sys.executable, "-c", RUN, *OPTIONS, *(str(exir / file) for file in FILES)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert run.stdout.splitlines()[-1].startswith(WITHOUT), run.stdout[-2000:]
