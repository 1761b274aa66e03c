"""Splicing arenas into programs that stock exir serialised."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import compose
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime, Verification
from splice_values import ARENAS, BINDINGS, header_of
from torch import Tensor, nn

from pte_arenas.frame import read_header
from pte_arenas.layout import ArenaBinding, ArenaLayout
from pte_arenas.runtime import _C
from pte_arenas.splice import splice, splice_program
from pte_arenas.wire.Program import Program


class Model(nn.Module):
    """A model with weights, and optionally with state that starts from a value."""

    total: Tensor

    def __init__(self, stateful: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(64.0).view(8, 8) / 50 - 0.6, requires_grad=False)
        self.stateful = stateful
        self.register_buffer("total", torch.full((8,), 5.0))

    def forward(self, x: Tensor) -> Tensor:
        if not self.stateful:
            return torch.nn.functional.linear(x, self.weight) + 1
        self.total.add_(x[0])
        return torch.nn.functional.linear(x, self.weight) + self.total


X = torch.arange(16.0).reshape(2, 8)


@dataclasses.dataclass(frozen=True)
class Case:
    """How stock exir makes a program."""

    methods: tuple[str, ...] = ("forward",)
    stateful: bool = False
    partitioner: tuple[Any, ...] = ()
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    def export(self) -> list[bytes]:
        """The chunks of the file."""
        exported = torch.export.export(Model(self.stateful), (X,), strict=False)
        edge = to_edge_transform_and_lower(
            dict.fromkeys(self.methods, exported), partitioner=[each() for each in self.partitioner]
        )
        config = dict(self.config)
        if self.stateful:
            config["passes"] = [InitializedMutableBufferPass(["total"])]
        program = edge.to_executorch(ExecutorchBackendConfig(**config))
        return list(program._pte_data._buffers)

    def eager(self) -> list[Tensor]:
        """The outputs of two calls."""
        model = Model(self.stateful)
        return [model(X), model(X)]


CASES = {
    "portable": Case(),
    "initial-data": Case(stateful=True),
    "several-methods": Case(methods=("forward", "other", "third")),
    "xnnpack": Case(partitioner=(XnnpackPartitioner,)),
    "xnnpack-inline": Case(
        partitioner=(XnnpackPartitioner,),
        config={"extract_delegate_segments": False, "delegate_alignment": 256},
    ),
    "aligned": Case(
        stateful=True, config={"segment_alignment": 128, "constant_tensor_alignment": 128}
    ),
    "page-aligned": Case(
        methods=("other", "forward"),
        partitioner=(XnnpackPartitioner,),
        config={"segment_alignment": 4096, "constant_tensor_alignment": 64},
    ),
}


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def chunks(case: Case) -> list[bytes]:
    return case.export()


def bindings_of(methods: tuple[str, ...]) -> dict[str, tuple[ArenaBinding, ...]]:
    return {name: bindings for name, bindings in BINDINGS.items() if name in methods}


def spliced(case: Case, chunks: list[bytes]) -> list[bytes]:
    alignment = case.config.get("segment_alignment", 128)
    return splice_program(chunks, ARENAS, bindings_of(case.methods), segment_alignment=alignment)


def test_stock_runtime_gives_the_same_outputs(case: Case, chunks: list[bytes]) -> None:
    data = b"".join(spliced(case, chunks))
    runtime = Runtime.get()
    program = runtime.load_program(data, verification=Verification.InternalConsistency)
    assert program.method_names == set(case.methods)
    for name in case.methods:
        method = program.load_method(name)
        for expected in case.eager():
            (output,) = method.execute([X])
            torch.testing.assert_close(output, expected)


def test_segments_are_unchanged_and_not_copied(case: Case, chunks: list[bytes]) -> None:
    result = spliced(case, chunks)
    old, new = header_of(chunks[0]), header_of(result[0])
    # chunks: the program, padding, then the segments with their padding
    assert all(a is b for a, b in zip(chunks[2:], result[-len(chunks[2:]) :], strict=True))
    assert new.program_size == len(result[0])
    assert new.segment_base_offset % case.config.get("segment_alignment", 128) == 0
    assert 0 <= new.segment_base_offset - new.program_size < 4096
    assert new.segment_data_size == old.segment_data_size
    segments = b"".join(chunks)[old.segment_base_offset :]
    assert b"".join(result)[new.segment_base_offset :] == segments
    assert len(segments) == old.segment_data_size


def test_exir_reads_the_same_program(case: Case, chunks: list[bytes]) -> None:
    before, after = (
        deserialize_pte_binary(b"".join(each)) for each in (chunks, spliced(case, chunks))
    )
    assert after.program == before.program
    assert after.mutable_data == before.mutable_data


def test_readers_find_the_arenas(case: Case, chunks: list[bytes]) -> None:
    program = Program.GetRootAs(spliced(case, chunks)[0])
    table = program.ProgramArenas()
    assert (table.Format(), table.RequiredFeaturesLength(), table.ArenasLength()) == (1, 0, 2)
    state, scratch = table.Arenas(0), table.Arenas(1)
    assert (state.Name(), state.Size(), state.Alignment()) == (b"state", 1 << 40, 4096)
    assert (state.Lifetime(), state.DeviceType(), state.DeviceIndex()) == (0, 0, 0)
    assert (scratch.Lifetime(), scratch.DeviceType(), scratch.DeviceIndex()) == (1, 1, 3)
    assert (scratch.Alignment(), scratch.SlotsLength()) == (64, 0)
    first, second = state.Slots(0), state.Slots(1)
    assert (first.FullyQualifiedName(), first.ScalarType(), first.Nbytes()) == (b"k", 6, 32)
    assert first.SizesAsNumpy().tolist() == [2, 4]
    assert first.DimOrderAsNumpy().tolist() == [1, 0]
    assert second.FullyQualifiedName() == "ünïcode".encode()
    assert (second.ScalarType(), second.SizesLength(), second.DimOrderLength()) == (11, 0, 0)
    assert (second.Offset(), second.Nbytes(), second.DataBufferIdx()) == (40, 1, 7)


def test_readers_find_the_bindings(case: Case, chunks: list[bytes]) -> None:
    program = Program.GetRootAs(spliced(case, chunks)[0])
    found = {}
    for index in range(program.ExecutionPlanLength()):
        plan = program.ExecutionPlan(index)
        bindings = map(plan.ArenaBindings, range(plan.ArenaBindingsLength()))
        found[plan.Name().decode()] = [
            (
                binding.MemoryId(),
                binding.Arena(),
                [
                    (binding.Accesses(i).Slot(), binding.Accesses(i).Mode())
                    for i in range(binding.AccessesLength())
                ],
            )
            for binding in bindings
        ]
    expected = {
        "forward": [(1, 1, []), (2, 0, [(1, 1), (0, 2)])],
        "other": [(3, 0, [(1, 1)])],
        "third": [],
    }
    assert found == {name: expected[name] for name in case.methods}


@pytest.mark.parametrize("name", ["s", "s" * 40, "s" * 100, "s" * 170])
def test_inner_data_keeps_its_alignment(case: Case, chunks: list[bytes], name: str) -> None:
    arenas = [ArenaLayout(name=name, size=0)]
    alignment = case.config.get("delegate_alignment", 16)
    (old_data, new_data) = (
        [
            program.BackendDelegateData(i).DataAsNumpy().tobytes()
            for i in range(program.BackendDelegateDataLength())
        ]
        for program in map(Program.GetRootAs, (chunks[0], splice(chunks[0], arenas, {})))
    )
    assert new_data == old_data
    assert len(new_data) == int(case.config.get("extract_delegate_segments") is False)
    for head in (chunks[0], splice(chunks[0], arenas, {})):
        assert [head.index(data) % alignment for data in new_data] == [0] * len(new_data)


def test_flatc_prints_the_program(case: Case, chunks: list[bytes], tmp_path: Path) -> None:
    schema = tmp_path / "schema"
    compose.build(schema, compose.installed_schema())
    texts = []
    for name, parts in (("old", chunks), ("new", spliced(case, chunks))):
        (tmp_path / f"{name}.pte").write_bytes(parts[0])
        subprocess.run(
            [
                *(compose.flatc(), "--json", "--strict-json", "--raw-binary", "-o", tmp_path),
                *(schema / "program.fbs", "--", tmp_path / f"{name}.pte"),
            ],
            check=True,
        )
        texts.append(json.loads((tmp_path / f"{name}.json").read_text()))
    old, new = texts
    assert [arena["name"] for arena in new.pop("program_arenas")["arenas"]] == ["state", "scratch"]
    for plan in new["execution_plan"]:
        plan.pop("arena_bindings", None)
    assert new == old


def test_our_verifier_accepts_the_program(case: Case, chunks: list[bytes]) -> None:
    _C.verify(b"".join(spliced(case, chunks)))


def test_same_input_gives_the_same_bytes(case: Case, chunks: list[bytes]) -> None:
    assert spliced(case, chunks) == spliced(case, chunks)


def test_alignment_of_segments_is_kept_where_it_is_not_given(chunks: list[bytes]) -> None:
    (new_head, *_) = splice_program(chunks, ARENAS, {})
    old, new = header_of(chunks[0]), header_of(new_head)
    natural = min(4096, old.segment_base_offset & -old.segment_base_offset)
    assert new.segment_base_offset % natural == 0


def test_whole_file_in_one_chunk(case: Case, chunks: list[bytes]) -> None:
    whole = splice_program(
        [b"".join(chunks)],
        ARENAS,
        bindings_of(case.methods),
        segment_alignment=case.config.get("segment_alignment", 128),
    )
    assert b"".join(whole) == b"".join(spliced(case, chunks))


class Plain(nn.Module):
    """A model without weights, so that stock writes neither segments nor a header."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x


def test_stock_program_without_segments() -> None:
    edge = to_edge_transform_and_lower(torch.export.export(Plain(), (X,)))
    chunks = edge.to_executorch()._pte_data._buffers
    assert read_header(chunks[0]) is None
    (new,) = splice_program(chunks, ARENAS, {"forward": BINDINGS["forward"]})
    assert read_header(new) is None
    program = Runtime.get().load_program(new, verification=Verification.InternalConsistency)
    (output,) = program.load_method("forward").execute([X])
    torch.testing.assert_close(output, Plain()(X))
    assert Program.GetRootAs(new).ProgramArenas().Arenas(1).Name() == b"scratch"
