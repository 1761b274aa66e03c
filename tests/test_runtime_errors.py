"""What the runtime refuses, and what it says then."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary
from runtime_programs import ONES, counter, counter_bytes, stock, stock_bytes
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import pte_arenas as pa
from pte_arenas.runtime import Session, load_program
from pte_arenas.wire.Program import Program


@pytest.fixture(scope="module")
def session() -> Session:
    return counter().session()


FLOATS = "bump: input 0: expected float32 of sizes (2, 3) but found "


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        pytest.param((), ValueError, "bump: expected 1 input but found 0", id="none"),
        pytest.param(
            {ONES},
            TypeError,
            "bump: expected a sequence of 1 input but found a set, which has no order",
            id="set",
        ),
        pytest.param((ONES, ONES), ValueError, "bump: expected 1 input but found 2", id="two"),
        pytest.param((ONES.long(),), ValueError, FLOATS + "int64 of sizes (2, 3)", id="dtype"),
        pytest.param((ONES.T,), ValueError, FLOATS + "float32 of sizes (3, 2)", id="sizes"),
        pytest.param((ONES[0],), ValueError, FLOATS + "float32 of sizes (3,)", id="rank"),
        pytest.param(
            (ONES.to(torch.complex64),),
            ValueError,
            FLOATS + "complex64 of sizes (2, 3)",
            id="complex",
        ),
        pytest.param(
            (ONES.to_sparse(),),
            ValueError,
            FLOATS + "float32 of sizes (2, 3) in sparse_coo layout",
            id="sparse",
        ),
        pytest.param(
            (ONES.to("meta"),), ValueError, FLOATS + "float32 of sizes (2, 3) on meta", id="meta"
        ),
        pytest.param((3,), TypeError, FLOATS + "the int 3", id="int"),
        pytest.param((0.5,), TypeError, FLOATS + "the float 0.5", id="float"),
        pytest.param((True,), TypeError, FLOATS + "True", id="bool"),
        pytest.param((None,), TypeError, FLOATS + "None", id="None"),
        pytest.param(([1.0],), TypeError, FLOATS + "list", id="list"),
        pytest.param(
            (ONES.numpy(),),
            TypeError,
            FLOATS + "numpy.ndarray: torch.from_numpy makes it a tensor",
            id="numpy",
        ),
        pytest.param(
            ONES,
            TypeError,
            "bump: expected a sequence of 1 input but found a tensor: write (tensor,)",
            id="bare-tensor",
        ),
        pytest.param(
            7,
            TypeError,
            "bump: expected a sequence of 1 input but found the int 7",
            id="no-sequence",
        ),
    ],
)
def test_refuses_inputs(
    session: Session, inputs: Any, error: type[Exception], message: str
) -> None:
    before = session.execute("get")
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        session.execute("bump", inputs)
    assert all(map(torch.equal, session.execute("get"), before))


def test_refuses_a_tensor_without_memory(session: Session) -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(ONES)
    message = "bump: input 0: expected a tensor with data but found FakeTensor"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        session.execute("bump", (fake,))
    view = session.arena("state")
    slot = view[next(iter(view))]
    values = slot.clone()
    for empty in (mode.from_tensor(values), torch._efficientzerotensor(values.shape)):
        with pytest.raises((TypeError, ValueError), match=r"^slot '\w+': expected "):
            slot.copy_from(empty)


def test_refuses_a_tensor_inside_of_a_transform(session: Session) -> None:
    message = (
        FLOATS + "float32 of sizes (2, 3) whose memory torch does not give, as inside of torch.func"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        torch.vmap(lambda x: session.execute("bump", (x,))[0])(torch.stack([ONES, ONES]))


def test_names_the_operator_that_has_no_kernel() -> None:
    data = counter_bytes().replace(b"aten::add\0", b"aten::and\0")
    session = load_program(data).session()
    message = (
        "execution_plan[0].operators[0]: expected a kernel for aten::and.out but found none: link "
        "the library that registers it"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        session.load_method("bump")
    session.execute("get")


@pytest.mark.parametrize("option", ["load_mode", "verification"])
def test_refuses_an_option_of_another_type(option: str) -> None:
    options: dict[str, Any] = {option: 7}
    with pytest.raises(TypeError, match=rf"^{option}: expected a \w+ but found the int 7$"):
        load_program(counter_bytes(), **options)


class Scaled(nn.Module):
    def forward(self, x: Tensor, by: int, more: float, on: bool, no: None) -> Tensor:
        return x * by + more


EXPORTED = ", the value that the method was exported with, but found "


@pytest.mark.parametrize(
    ("index", "value", "error", "message"),
    [
        pytest.param(1, 4, ValueError, "the int 3" + EXPORTED + "the int 4", id="int"),
        pytest.param(1, 3.0, ValueError, "the int 3" + EXPORTED + "the float 3.0", id="not-int"),
        pytest.param(1, 2**70, ValueError, f"the int 3{EXPORTED}the int {2**70}", id="large-int"),
        pytest.param(
            1, ONES, TypeError, f"the int 3{EXPORTED}float32 of sizes (2, 3)", id="tensor"
        ),
        pytest.param(2, 0.25, ValueError, f"the float 0.5{EXPORTED}the float 0.25", id="float"),
        pytest.param(3, False, ValueError, "True" + EXPORTED + "False", id="bool"),
        pytest.param(3, 1, ValueError, "True" + EXPORTED + "the int 1", id="not-bool"),
        pytest.param(4, 1, ValueError, "None but found the int 1", id="None"),
    ],
)
def test_scalars_are_what_the_method_was_exported_with(
    index: int, value: Any, error: type[Exception], message: str
) -> None:
    inputs = [torch.ones(2), 3, 0.5, True, None]
    execute = stock(Scaled(), *inputs)
    assert torch.equal(execute(inputs)[0], torch.full((2,), 3.5))
    inputs[index] = value
    with pytest.raises(
        error, match=f"^{re.escape(f'forward: input {index}: expected {message}')}$"
    ):
        execute(inputs)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        pytest.param(
            lambda session: session.load_method("bum"),
            "expected the name of a method but found 'bum'; did you mean 'bump'?",
            id="method",
        ),
        pytest.param(
            lambda session: session.execute("é"),
            "expected the name of a method but found '\\u00e9'; there are 'bump', 'double', 'get'",
            id="execute",
        ),
        pytest.param(
            lambda session: session.unload_method("gets"),
            "expected the name of a method but found 'gets'; did you mean 'get'?",
            id="unload",
        ),
        pytest.param(
            lambda session: session.arena("states"),
            "expected the name of an arena but found 'states'; did you mean 'state'?",
            id="arena",
        ),
        pytest.param(
            lambda session: session.arena("state")["counts"],
            "expected the name of a slot of arena 'state' but found 'counts'; "
            "did you mean 'count'?",
            id="slot",
        ),
        pytest.param(
            lambda session: session.reset("state", "x"),
            "expected the name of a slot of arena 'state' but found 'x'; "
            "there are 'count', 'steps'",
            id="reset",
        ),
        pytest.param(
            lambda session: session.reset(slot="count"),
            "expected the arena of slot 'count' as well",
            id="reset-without-arena",
        ),
    ],
)
def test_refuses_names(session: Session, use: Callable[[Session], object], message: str) -> None:
    with pytest.raises(pa.ArenaError, match=f"^{re.escape(message)}$"):
        use(session)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        pytest.param(
            lambda session: session.execute(3, ()),
            TypeError,
            "expected the name of a method but found the int 3",
            id="execute",
        ),
        pytest.param(
            lambda session: session.load_method(None),
            TypeError,
            "expected the name of a method but found None",
            id="load",
        ),
        pytest.param(
            lambda session: session.unload_method(["bump"]),
            TypeError,
            "expected the name of a method but found list",
            id="unload",
        ),
        pytest.param(
            lambda session: session.arena(True),
            TypeError,
            "expected the name of an arena but found True",
            id="arena",
        ),
        pytest.param(
            lambda session: session.reset("state", b"count"),
            TypeError,
            "expected the name of a slot of arena 'state' but found bytes",
            id="slot",
        ),
        pytest.param(
            lambda session: session.execute("bump", None),
            TypeError,
            "bump: expected a sequence of 1 input but found None",
            id="inputs",
        ),
        pytest.param(
            lambda session: session.load_method("bump").execute(None),
            TypeError,
            "bump: expected a sequence of 1 input but found None",
            id="inputs-of-method",
        ),
        pytest.param(
            lambda session: session.load_method("bump").metadata.input_tensor_meta(-1),
            IndexError,
            "bump: inputs: expected an index in [0, 1) but found -1",
            id="negative",
        ),
        pytest.param(
            lambda session: session.load_method("get").metadata.output_tensor_meta(2**70),
            IndexError,
            f"get: outputs: expected an index in [0, 2) but found {2**70}",
            id="large",
        ),
        pytest.param(
            lambda session: session.load_method("get").metadata.attribute_tensor_meta(0.5),
            TypeError,
            "get: attributes: expected an index but found the float 0.5",
            id="no-index",
        ),
    ],
)
def test_refuses_other_types(
    session: Session, use: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        use(session)


@pytest.mark.parametrize("use", ["load_method", "metadata"])
def test_a_program_refuses_names(use: str) -> None:
    with pytest.raises(pa.ArenaError, match="expected the name of a method but found 'forward'"):
        getattr(counter(), use)("forward")


def test_an_unloaded_method_says_so() -> None:
    session = counter().session()
    bump = session.load_method("bump")
    session.unload_method("bump")
    with pytest.raises(
        pa.ArenaError,
        match=r"^bump: expected a loaded method but found that it was unloaded: "
        r"load it again with load_method$",
    ):
        bump.execute((ONES,))


def test_a_damaged_program_is_refused_with_its_path(tmp_path: Path) -> None:
    data = counter_bytes()
    damaged = data[: len(data) // 2]
    path = tmp_path / "damaged.pte"
    path.write_bytes(damaged)
    for source in (damaged, path):
        with pytest.raises(pa.InvalidProgramError) as caught:
            load_program(source)
        assert (caught.value.where, caught.value.message) == (
            "program",
            "expected a well-formed ExecuTorch program but found damaged or truncated data",
        )


def damaged(damage: Callable[[Any], None]) -> bytes:
    """A stock program with a damage that no rule of docs/checks.md covers."""
    data = stock_bytes(Scaled(), {"forward": [torch.ones(2), 3, 0.5, True, None]})
    file = deserialize_pte_binary(data)
    damage(file.program.execution_plan[0])
    found = bytes(serialize_pte_binary(file))
    pa.check(found)
    return found


def test_what_only_executorch_refuses_is_an_invalid_program() -> None:
    def negative_size(plan: Any) -> None:
        plan.values[plan.inputs[0]].val.sizes = [-2]

    with pytest.raises(pa.InvalidProgramError) as caught:
        load_program(damaged(negative_size))
    assert (caught.value.where, caught.value.message) == (
        "program",
        "expected a program that ExecuTorch accepts but it found Error::InvalidProgram",
    )


def test_a_method_that_refers_to_nothing_is_named() -> None:
    def no_operator(plan: Any) -> None:
        plan.chains[0].instructions[0].instr_args.op_index = 99

    program = load_program(damaged(no_operator))
    with pytest.raises(pa.InvalidProgramError) as caught:
        program.load_method("forward")
    assert (caught.value.where, caught.value.message) == (
        "execution_plan[0].chains[0].instructions[0]",
        "expected an instruction over values, named operators and delegates of the plan",
    )


def test_a_method_that_only_executorch_refuses_is_named() -> None:
    def more_dimensions(plan: Any) -> None:
        plan.values[plan.inputs[0]].val.sizes = [1, 1, 2]

    program = load_program(damaged(more_dimensions))
    with pytest.raises(pa.InvalidProgramError) as caught:
        program.load_method("forward")
    assert (caught.value.where, caught.value.message) == (
        "execution_plan[0]",
        "expected a method that ExecuTorch accepts but it found Error::InvalidProgram",
    )


def test_an_arena_beyond_all_memory_is_a_memory_error() -> None:
    data = counter_bytes()
    size = Program.GetRootAs(data).ProgramArenas().Arenas(0).Size()
    changed = bytearray(data)
    at = changed.index(size.to_bytes(8, "little"))
    changed[at : at + 8] = (1 << 60).to_bytes(8, "little")
    pa.check(changed)
    program = load_program(changed)
    with pytest.raises(
        MemoryError,
        match=r"^arenas\[0\]\.size: expected memory for 1152921504606846976 bytes of arena "
        r"'state' but found none$",
    ):
        program.session()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load_program(tmp_path / "no.pte")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError):
        load_program(tmp_path)
    with pytest.raises(TypeError, match=r"^expected a path, bytes or a file but found int$"):
        load_program(7)  # type: ignore[arg-type]


def test_a_correct_call_logs_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    inputs = [torch.ones(2), 3, 0.5, True, None]
    data = stock_bytes(Scaled(), {"forward": inputs})
    capfd.readouterr()  # exporting may say something
    method = load_program(data).load_method("forward")
    method.execute(inputs)
    assert method.metadata.num_inputs() == 5
    assert capfd.readouterr().err == ""


def test_a_failing_method_leaves_its_session_usable() -> None:
    """A kernel refuses an index that only the data can tell."""

    class Pick(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(3.0))

        def forward(self, i: Tensor) -> Tensor:
            return self.table.index_select(0, i)

    execute = stock(Pick(), torch.tensor([1]))
    with pytest.raises(
        RuntimeError, match=r"^forward: execution failed with Error::InvalidArgument \(0x12\)$"
    ):
        execute((torch.tensor([7]),))
    assert execute((torch.tensor([2]),))[0].tolist() == [2.0]
