"""The runtime in its process: beside ExecuTorch's own, in threads, and in memory."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from runtime_programs import ONES, counter, counter_bytes, stock_bytes
from torch import Tensor, nn

import pte_arenas as pa
from bench.sessions import COUNT, WEIGHTS, resident_of, write
from pte_arenas.runtime import _C, load_program


class Linear(nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


BOTH = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
{imports}
data = open(sys.argv[1], "rb").read()
x = torch.ones(4)
ours = load_program(data).load_method("forward").execute((x,))
stock = Runtime.get().load_program(data).load_method("forward").execute((x,))
assert torch.equal(ours[0], stock[0])
"""
OURS = "from pte_arenas.runtime import load_program"
STOCK = "from executorch.runtime import Runtime"


@pytest.mark.parametrize("imports", [[OURS, STOCK], [STOCK, OURS]], ids=["ours", "stock"])
def test_both_runtimes_live_in_one_process(tmp_path: Path, imports: list[str]) -> None:
    path = tmp_path / "linear.pte"
    path.write_bytes(stock_bytes(Linear(), {"forward": (torch.ones(4),)}))
    code = BOTH.format(imports="\n".join(imports))
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_runtime_does_not_import_torch_until_it_sees_a_tensor() -> None:
    code = "import pte_arenas.runtime, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_finds_executorch_beside_itself() -> None:
    """No folder of the machine that built it stays inside."""
    done = subprocess.run(
        ["readelf", "-d", _C.__file__],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", done.stdout)
    if "site-packages" not in str(_C.__file__):
        pytest.skip("not installed")
    assert paths == ["$ORIGIN/../../executorch/lib"]


def test_calls_on_one_session_wait_for_each_other() -> None:
    session = counter().session()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: session.execute("bump", (ONES,)), range(400)))
    value, steps = session.execute("get")
    assert torch.equal(value, ONES * 405)
    assert int(steps) == 400


def test_loading_and_unloading_race_with_execution() -> None:
    session = counter().session()

    def use(_: int) -> None:
        for _ in range(300):
            session.execute("bump", (ONES,))
            session.unload_method("bump")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert int(session.execute("get")[1]) == 1200
    (value,) = session.load_method("bump").execute((ONES,))
    assert torch.equal(value, ONES * 1206)


def test_sessions_run_in_parallel() -> None:
    program = counter()
    sessions = [program.session() for _ in range(4)]

    def run(index: int) -> None:
        for call in range(200):
            if call % 50 == 25:
                sessions[index].unload_method("bump")
            sessions[index].execute("bump", (ONES * index,))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    for index, session in enumerate(sessions):
        assert torch.equal(session.execute("get")[0], ONES * (5 + 200 * index))


def test_other_threads_run_while_a_method_executes() -> None:
    size = 1500
    x = torch.ones(size, size)

    class Matmul(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x @ x @ x

    data = to_edge(torch.export.export(Matmul(), (x,))).to_executorch().buffer
    method = load_program(data).load_method("forward")
    ticks = 0
    done = threading.Event()

    def execute() -> None:
        method.execute((x,))
        done.set()

    thread = threading.Thread(target=execute)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    assert ticks > 1000


def test_xnnpack_methods_run_and_share_weights() -> None:
    models = [Linear(32), Linear(32)]
    x = torch.rand(2, 32)
    for model in models:
        edge = to_edge_transform_and_lower(
            {name: torch.export.export(model, (x,)) for name in ("a", "b")},
            partitioner=[XnnpackPartitioner()],
        )
        data = edge.to_executorch().buffer
        assert b"XnnpackBackend" in data
        program = load_program(data)
        sessions = [program.session() for _ in range(2)]
        for session in sessions:
            for name in ("a", "b"):
                (found,) = session.execute(name, (x,))
                torch.testing.assert_close(found, model(x).detach())
                session.unload_method(name)


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_sessions_share_one_copy_of_the_weights(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pte"
    write(path, xnnpack=backend == "xnnpack", arena=True)
    one, many = (resident_of("sessions", path, count) for count in (1, COUNT))
    assert one > WEIGHTS // 2
    assert many < one + WEIGHTS


def test_large_state_costs_nothing_until_it_is_touched() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(1 << 28))  # 1 GiB

        def forward(self, x: Tensor) -> Tensor:
            self.cache[:1].add_(x)
            return self.cache[:1] * 1

    module = Large()
    exported = pa.export(
        {"forward": pa.EntryPoint(module.forward, (torch.ones(1),))},
        arenas=[pa.Arena("state", buffers=["cache"])],
    )
    data = pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer
    assert len(data) < 1 << 20
    before = resident_bytes()
    session = load_program(data).session()
    session.load_method("forward")
    assert resident_bytes() - before < 16 << 20
    session.arena("state")["cache"].tensor[-1] = 3
    session.reset()
    assert float(session.arena("state")["cache"].tensor[-1]) == 0


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_repeated_use_leaks_nothing() -> None:
    program = load_program(counter_bytes())
    session = program.session()
    view = session.arena("state")["count"].tensor

    def use() -> None:
        for _ in range(300):
            session.execute("bump", (ONES,))
            session.execute("get")
            other = program.session()
            other.execute("bump", (ONES.T.contiguous().T,))
            other.unload_method("bump")
            session.reset()
            assert torch.equal(view, session.arena("state")["count"].tensor)

    use()
    before = resident_bytes()
    use()
    assert resident_bytes() - before < 2 << 20
