"""Splicing arenas into programs that stock exir serialised."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compose
import flatbuffers
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime, Verification
from torch import Tensor, nn

from pte_arenas.errors import ArenaError, InvalidProgramError
from pte_arenas.frame import ExtendedHeader, read_header
from pte_arenas.layout import AccessMode, ArenaBinding, ArenaLayout, ArenaSlot, SlotAccess
from pte_arenas.splice import _PLAN_FIELDS, _PROGRAM_FIELDS, splice, splice_program
from pte_arenas.wire.Chain import ChainT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Instruction import InstructionT
from pte_arenas.wire.InstructionArguments import InstructionArguments
from pte_arenas.wire.KernelCall import KernelCallT
from pte_arenas.wire.Program import Program, ProgramT

SLOTS = (
    ArenaSlot(fqn="k", dtype="float32", sizes=(2, 4), dim_order=(1, 0), offset=0, nbytes=32),
    ArenaSlot(fqn="ünïcode", dtype="bool", offset=40, nbytes=1, data_buffer_idx=7),
)
ARENAS = (
    ArenaLayout(name="state", size=1 << 40, alignment=4096, slots=SLOTS),
    ArenaLayout(
        name="scratch", size=0, lifetime="scratch", device_type="cuda", device_index=3, slots=()
    ),
)
BINDINGS = {
    "forward": (
        ArenaBinding(memory_id=1, arena=1),
        ArenaBinding(
            memory_id=2,
            arena=0,
            accesses=(SlotAccess(slot=1, mode="write"), SlotAccess(slot=0, mode="read_write")),
        ),
    ),
    "other": (ArenaBinding(memory_id=3, arena=0, accesses=(SlotAccess(slot=1, mode="write"),)),),
}


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


def header_of(data: bytes) -> ExtendedHeader:
    header = read_header(data)
    assert header
    return header


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


def packed(program: ProgramT) -> bytes:
    builder = flatbuffers.Builder()
    builder.Finish(program.Pack(builder), file_identifier=b"ET12")
    return bytes(builder.Output())


def plan(name: str, **fields: Any) -> ExecutionPlanT:
    return ExecutionPlanT(name=name, nonConstBufferSizes=[0, 0, 64], **fields)


def test_program_without_segments_has_no_header() -> None:
    old = packed(ProgramT(executionPlan=[plan("forward", inputs=[1]), plan("other")]))
    (new,) = splice_program([old], ARENAS, BINDINGS, required_features=("a", "b"))
    assert read_header(new) is None
    assert new == splice(old, ARENAS, BINDINGS, required_features=("a", "b"))
    program = Program.GetRootAs(new)
    assert program.ExecutionPlan(0).InputsAsNumpy().tolist() == [1]
    assert program.ExecutionPlan(1).ArenaBindings(0).MemoryId() == 3
    table = program.ProgramArenas()
    assert [table.RequiredFeatures(i) for i in range(table.RequiredFeaturesLength())] == [
        b"a",
        b"b",
    ]


def test_version_is_kept() -> None:
    old = packed(ProgramT(version=3, executionPlan=[plan("forward")]))
    assert Program.GetRootAs(splice(old, ARENAS, {})).Version() == 3


def test_foreign_chunks_behind_the_program_are_passed_on() -> None:
    class FileBacked:
        def __len__(self) -> int:
            return 100

    file_backed = FileBacked()
    head = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=512, size=101)
    chunks: list[bytes | FileBacked] = [head, bytes(512 - len(head)), file_backed, b"x"]
    result = splice_program(chunks, ARENAS, {})
    assert result[-2] is file_backed
    assert isinstance(result[0], bytes)
    assert sum(map(len, result[:-2])) == header_of(result[0]).segment_base_offset


def with_header(program: bytes, base: int, size: int, length: int = 32) -> bytes:
    (root,) = struct.unpack_from("<I", program)
    header = struct.pack("<4sIQQQ", b"eh00", length, 32 + len(program), base, size)
    return struct.pack("<I", root + 32) + b"ET12" + header + program[8:]


def test_header_without_the_size_of_the_segments() -> None:
    old = with_header(packed(ProgramT(executionPlan=[plan("forward")])), 512, size=99, length=24)
    assert header_of(splice(old, ARENAS, {})).segment_data_size == 0


def test_header_without_segments() -> None:
    old = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=0, size=0)
    (new,) = splice_program([old], ARENAS, {})
    assert header_of(new) == (len(new), 0, 0)


def with_field(field: int, where: str) -> bytes:
    """A program whose root or plan has a field with this id."""
    builder = flatbuffers.Builder()
    name = builder.CreateString("forward")
    builder.StartObject(field + 1 if where == "plan" else 1)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    if where == "plan":
        builder.PrependUint32Slot(field, 1, 0)
    plans = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(plans)
    vector = builder.EndVector()
    builder.StartObject(field + 1 if where == "root" else 2)
    builder.PrependUOffsetTRelativeSlot(1, vector, 0)
    if where == "root":
        builder.PrependUint32Slot(field, 1, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"ET12")
    return bytes(builder.Output())


def later(where: str, known: int, field: int) -> str:
    return (
        f"{where}: expected the {known} fields of ExecuTorch 1.5.1 but found a field with id "
        f"{field}; use a version of pte-arenas for the ExecuTorch that wrote the program"
    )


@pytest.mark.parametrize(
    ("field", "where", "message"),
    [
        (8, "root", later("program", 8, 8)),
        (129, "root", later("program", 8, 129)),
        (128, "root", "program: expected a program without arenas but found some"),
        (10, "plan", later("execution_plan[0]", 10, 10)),
        (128, "plan", "execution_plan[0]: expected a program without arenas but found some"),
    ],
)
def test_refuses_fields_that_would_get_lost(field: int, where: str, message: str) -> None:
    with pytest.raises(ArenaError) as refusal:
        splice(with_field(field, where), ARENAS, {})
    assert str(refusal.value) == message


def test_known_fields_are_those_of_the_installed_executorch() -> None:
    upstream = compose.read_upstream(compose.installed_schema() / "program.fbs")
    composed = compose.compose(upstream, compose.read_extension(), "n")
    for table, known in (("Program", _PROGRAM_FIELDS), ("ExecutionPlan", _PLAN_FIELDS)):
        body = composed.partition(f"table {table} ")[2].partition("}")[0]
        assert body.count(";") - body.count("deprecated") == known + 1
        assert f"(id: {known}, deprecated)" in body


def test_refuses_an_unknown_method() -> None:
    old = packed(ProgramT(executionPlan=[plan("encode"), plan("decode")]))
    with pytest.raises(ArenaError) as refusal:
        splice(old, ARENAS, {"encode": (), **BINDINGS})
    assert str(refusal.value) == (
        "bindings: expected methods of the program (encode, decode) but found 'forward', 'other'"
    )


DAMAGED = "program: expected a well-formed ExecuTorch program but found damaged or truncated data"
WHOLE = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=512, size=1)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing"),
        pytest.param([b""], id="empty"),
        pytest.param([b"PK\3\4" * 20], id="another-format"),
        pytest.param([WHOLE[:-1]], id="truncated"),
        pytest.param([WHOLE], id="without-segments"),
        pytest.param([range(100), b""], id="not-bytes"),
    ],
)
def test_refuses_what_is_not_a_program(chunks: list[Any]) -> None:
    with pytest.raises(InvalidProgramError) as refusal:
        splice_program(chunks, ARENAS, {})
    assert str(refusal.value) == DAMAGED


def test_refuses_a_truncated_head() -> None:
    with pytest.raises(InvalidProgramError) as refusal:
        splice(WHOLE[:-1], ARENAS, {})
    assert str(refusal.value) == DAMAGED


def seconds(function: Callable[[], object]) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def test_instructions_cost_nothing() -> None:
    call = InstructionT(InstructionArguments.KernelCall, KernelCallT(opIndex=0, args=[1, 2, 3, 4]))
    program = packed(
        ProgramT(executionPlan=[plan("forward", chains=[ChainT(instructions=[call] * 10_000)])])
    )
    assert seconds(lambda: splice(program, ARENAS, {"forward": BINDINGS["forward"]})) < 0.01


MODES: tuple[AccessMode, ...] = ("read", "write", "read_write")


def test_many_methods_and_slots() -> None:
    program = packed(ProgramT(executionPlan=[plan(f"m{i}") for i in range(64)]))
    slots = [SLOTS[0].model_copy(update={"fqn": f"layers.{i}.k"}) for i in range(1000)]
    arenas = [ARENAS[0].model_copy(update={"slots": tuple(slots)})]
    bindings = {}
    for method in range(64):
        accesses = tuple(
            SlotAccess(slot=slot, mode=MODES[(slot + method) % 3]) for slot in range(1000)
        )
        bindings[f"m{method}"] = (ArenaBinding(memory_id=1, arena=0, accesses=accesses),)
    assert seconds(lambda: splice(program, arenas, bindings)) < 1
    found = Program.GetRootAs(splice(program, arenas, bindings)).ExecutionPlan(63).ArenaBindings(0)
    assert [found.Accesses(i).Mode() for i in range(4)] == [0, 1, 2, 0]
