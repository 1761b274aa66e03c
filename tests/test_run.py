"""`pte-arenas run`: methods of a file, one after the other over one state."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from runtime_programs import stock_bytes
from torch import Tensor, nn

from bench.shared_state import emit_stock_sharing

COUNTER = Path(__file__).parent / "golden" / "counter.pte"


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pte_arenas", "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_methods_see_what_those_before_them_left() -> None:
    done = run(COUNTER, "get", "forward", "get", "reset", "get", "--fill", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "get\n  0  int64 []  [5]\n"
        "forward\n  0  int64 []  [8]\n"
        "get\n  0  int64 []  [8]\n"
        "reset\n  0  None\n"
        "get\n  0  int64 []  [5]\n"
    )


def test_inputs_and_state_come_from_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **{"forward.0": np.int64(30)})
    state = tmp_path / "state.safetensors"
    first = run(COUNTER, "forward", "--inputs", tmp_path / "inputs.npz", "--save-state", state)
    assert first.returncode == 0, first.stderr
    then = run(COUNTER, "get", "--load-state", state, "--json")
    assert json.loads(then.stdout) == [
        {"method": "get", "outputs": [{"dtype": "int64", "sizes": [], "values": 35}]}
    ]


def test_numbers_that_json_lacks_are_strings(tmp_path: Path) -> None:
    path = tmp_path / "double.pte"
    path.write_bytes(stock_bytes(Double(), {"forward": (torch.ones(3),)}))
    np.savez(tmp_path / "in.npz", **{"forward.0": np.array([np.nan, -np.inf, 2], np.float32)})
    done = run(path, "forward", "--inputs", tmp_path / "in.npz", "--json")
    (value,) = json.loads(done.stdout, parse_constant=pytest.fail)[0]["outputs"]
    assert value["values"] == ["NaN", "-Infinity", 4.0]


def test_errors_name_options_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "shared.pte"
    path.write_bytes(emit_stock_sharing(5.0))
    done = run(path, "get", "add")
    assert done.stderr.splitlines()[-1] == (
        f"{path}: expected to be told whether the methods share memory, since all of them plan 96 "
        "bytes of memory id 2 and the program has no arenas; --shared-memory-id 2 if it was "
        "exported with share_mutable_buffers=True, else --unshared"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["gett"],
            f"{COUNTER}: expected the name of a method but found 'gett'; did you mean 'get'?",
        ),
        (
            ["get", "--inputs", "other.npz"],
            (
                f"{COUNTER}: inputs: expected names METHOD.INDEX but found 'forward.1'; "
                "did you mean 'forward.0'?"
            ),
        ),
        (
            ["forward", "--inputs", "float.npz"],
            (
                f"{COUNTER}: forward: input 0: expected int64 of sizes () but found float32 of "
                "sizes (2,)"
            ),
        ),
        (
            ["get", "--inputs", "text.npz"],
            f"{COUNTER}: inputs: expected an .npz file of numbers but found 'text.npz'",
        ),
        (
            ["get", "--shared-memory-id", "2"],
            f"{COUNTER}: program_arenas: expected a program without arenas but found 'state'",
        ),
        (["get", "--inputs", "missing.npz"], "missing.npz: no such file or directory"),
        (["get", "--load-state", "missing"], "missing: no such file or directory"),
        (["get", "--save-state", "none/state"], "none/state: no such file or directory"),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("other.npz", **{"forward.1": np.int64(1)})
    np.savez("float.npz", **{"forward.0": np.ones(2, np.float32)})
    Path("text.npz").write_text("text")
    done = run(COUNTER, *arguments)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, sentence)
