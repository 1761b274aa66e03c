"""The CMake package: a C++ application over it, without Python, does what eager PyTorch does.

Builds against the installed wheel, or what `pte_arenas_ROOT` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from golden.make import Counter

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "golden" / "counter.pte"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **environment}
    )


def cmake_dir() -> str:
    done = run(sys.executable, "-m", "pte_arenas", "--cmake-dir")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def configure(build: Path, **places: str) -> subprocess.CompletedProcess[str]:
    """Runs the first step of the example's build, with CMake and Ninja from PyPI."""
    scripts = Path(sys.executable).parent
    return run(
        *(scripts / "cmake", "-S", ROOT / "examples" / "cpp", "-B", build, "-G", "Ninja"),
        *(f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}", "-DCMAKE_BUILD_TYPE=Debug"),
        **places,
    )


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built."""
    build = tmp_path_factory.mktemp("counter")
    places = {} if "pte_arenas_ROOT" in os.environ else {"pte_arenas_DIR": cmake_dir()}
    for done in (
        configure(build, **places),
        run(Path(sys.executable).parent / "cmake", "--build", build),
    ):
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "counter"


def test_counts_as_eager_code(counter: Path) -> None:
    module, step = Counter(), torch.tensor(2)
    calls = [("get", module.get()), ("forward", module(step)), ("forward", module(step))]
    calls += [("get", module.get()), ("get", Counter().get())]
    done = run(counter, PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{name}: {count.item()}\n" for name, count in calls)


def test_says_what_is_wrong_with_a_file(counter: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pte"
    path.write_bytes(PROGRAM.read_bytes()[:-1])
    done = run(counter, path)
    assert done.returncode == 1
    assert done.stderr == (
        f"{path}: Error::InvalidProgram program: expected a well-formed ExecuTorch program but "
        "found damaged or truncated data\n"
    )


def test_needs_no_python(counter: Path) -> None:
    libraries = run("ldd", counter).stdout
    assert "libexecutorch.so" in libraries
    assert "libpython" not in libraries


def test_another_version_of_executorch_is_refused(tmp_path: Path) -> None:
    """Where no wheel lies beside the package."""
    package, other = tmp_path / "share" / "cmake", tmp_path / "other"
    shutil.copytree(cmake_dir(), package)
    other.mkdir()
    (other / "executorch-config.cmake").touch()
    (other / "executorch-config-version.cmake").write_text('set(PACKAGE_VERSION "1.6.0")\n')
    done = configure(tmp_path / "build", pte_arenas_DIR=str(package), executorch_DIR=str(other))
    assert done.returncode == 1
    assert (
        "expected ExecuTorch 1.5.1 with its C++ runtime (executorch::runtime) but found none: set "
        "executorch_DIR to executorch/share/cmake of an installed wheel"
    ) in " ".join(done.stderr.split())
