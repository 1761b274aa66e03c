"""The names of `executorch.runtime`: its own tests pass, and what differs says so."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import executorch.runtime
import pytest
import torch
from runtime_programs import ONES, Counter, counter_bytes, stock_bytes

import pte_arenas as pa
from pte_arenas import runtime

TESTS = Path(executorch.runtime.__file__).parent / "test"
# What ExecuTorch 1.5.1 gives with its own runtime.
WITHOUT = "14 passed"
RUN = """
import sys, pytest, executorch, pte_arenas.runtime
executorch.runtime = sys.modules["executorch.runtime"] = pte_arenas.runtime
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_upstream_tests_pass_with_the_import_redirected(tmp_path: Path) -> None:
    files = sorted(map(str, TESTS.glob("test_*.py")))
    assert len(files) == 3
    run = subprocess.run(
        [sys.executable, "-c", RUN, "-c", "/dev/null", *files],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.stdout.splitlines()[-1].startswith(WITHOUT), run.stdout[-2000:]


def test_registries_are_those_of_executorch_runtime() -> None:
    ours, stock = runtime.Runtime.get(), executorch.runtime.Runtime.get()
    assert ours is runtime.Runtime.get()
    backends = ours.backend_registry
    assert set(backends.registered_backend_names) == set(
        stock.backend_registry.registered_backend_names
    )
    assert "XnnpackBackend" in backends.registered_backend_names
    for name in [*backends.registered_backend_names, "NoBackend"]:
        assert backends.is_available(name) == stock.backend_registry.is_available(name)
    assert ours.operator_registry.operator_names == stock.operator_registry.operator_names


def test_sources(tmp_path: Path) -> None:
    data = counter_bytes()
    path = tmp_path / "counter.pte"
    path.write_bytes(data)
    with path.open("rb") as file:
        for source in (data, bytearray(data), memoryview(data), io.BytesIO(data), file, str(path)):
            method = runtime.Runtime.get().load_program(source).load_method("bump")
            torch.testing.assert_close(method.execute((ONES,)), [ONES * 6])
    with pytest.raises(TypeError, match=r"^expected a path, bytes or a file but found int$"):
        runtime.load_program(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", list(runtime.LoadMode))
@pytest.mark.parametrize("verification", list(runtime.Verification))
def test_load_modes(mode: Any, verification: Any, tmp_path: Path) -> None:
    path = tmp_path / "counter.pte"
    path.write_bytes(counter_bytes())
    session = runtime.load_program(path, load_mode=mode, verification=verification).session()
    torch.testing.assert_close(session.execute("bump", (ONES,)), [ONES * 6])


def test_metadata_is_that_of_executorch_runtime() -> None:
    data = stock_bytes(torch.nn.Linear(3, 2), {"forward": (torch.ones(1, 3),)})
    ours = runtime.load_program(data).metadata("forward")
    stock = executorch.runtime.Runtime.get().load_program(data).metadata("forward")
    assert (ours.name(), ours.num_inputs(), ours.num_outputs(), ours.num_attributes()) == (
        stock.name(),
        stock.num_inputs(),
        stock.num_outputs(),
        stock.num_attributes(),
    )
    for have, want in (
        (ours.input_tensor_meta(0), stock.input_tensor_meta(0)),
        (ours.output_tensor_meta(0), stock.output_tensor_meta(0)),
    ):
        assert have.sizes() == tuple(want.sizes())
        assert have.dtype() == want.dtype()
        assert have.nbytes() == want.nbytes()
        assert have.is_memory_planned() == want.is_memory_planned()


def test_default_session_is_one_session() -> None:
    program = runtime.load_program(counter_bytes())
    program.load_method("bump").execute((ONES,))
    eager = Counter()
    eager.bump(ONES)
    torch.testing.assert_close(program.load_method("get").execute(()), list(eager.get()))
    fresh = list(Counter().get())
    torch.testing.assert_close(program.session().execute("get"), fresh)


def test_etdump_needs_to_be_asked_for(tmp_path: Path) -> None:
    program = runtime.load_program(counter_bytes())
    program.load_method("get").execute(())
    with pytest.raises(pa.ArenaError) as error:
        program.write_etdump_result_to_file(tmp_path / "dump.etdp", tmp_path / "values.bin")
    assert str(error.value) == (
        "expected events to write but found none: give event_tracer=True when the session is made "
        "and execute a method"
    )
    assert not list(tmp_path.iterdir())
