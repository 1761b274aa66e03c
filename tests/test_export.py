"""Declaring and exporting: names, entry points, wrong use, and what stays untouched."""

from __future__ import annotations

import copy
import re
import sys
import threading
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from hypothesis import given
from hypothesis import strategies as st
from stateful_models import Counter, Forwarding, Hidden, NamedLikeInput, Resetting, Shared, Tied
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program
from pte_arenas.views import View, view_steps

X = torch.tensor([1.0, 2.0])


def _entries(module: nn.Module, **methods: tuple[Any, ...]) -> dict[str, pa.EntryPoint]:
    return {name: pa.EntryPoint(getattr(module, name), args) for name, args in methods.items()}


def _run(exported: pa.Exported) -> Any:
    edge = to_edge_transform_and_lower(exported.programs)
    return load_program(pa.to_executorch(edge, exported.arenas).buffer).session()


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Counter(1.0), Counter(2.0)
        self.right.register_buffer("extra", torch.zeros(1), persistent=False)

    def step(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x) + self.right.extra

    def get(self) -> Tensor:
        return self.left.get() - self.right.get()


@pytest.mark.parametrize(
    ("patterns", "slots"),
    [
        pytest.param(["left.state"], ["left.state"], id="name"),
        pytest.param(["*.state"], ["left.state", "right.state"], id="glob"),
        pytest.param(["right.*"], ["right.state", "right.extra"], id="submodule"),
        pytest.param(
            ["right.state", "left.*"], ["left.state", "right.state"], id="registered-order"
        ),
        pytest.param(None, ["left.state", "right.state"], id="all-shared"),
        pytest.param(["[lr]*.st?te"], ["left.state", "right.state"], id="character-class"),
    ],
)
@pytest.mark.filterwarnings("ignore:buffer .* no arena holds it")
def test_patterns_find_buffers(patterns: list[str] | None, slots: list[str]) -> None:
    module = Nested()
    exported = pa.export(
        _entries(module, step=(torch.ones(2, 2),), get=()), [pa.Arena("s", patterns)]
    )
    (arena,) = exported.arenas
    assert [buffer.name for buffer in arena.buffers] == slots


WRONG_USE = [
    pytest.param(
        lambda m: ({"get": m.get}, [pa.Arena("s", ["stat"])]),
        "arena 's': expected a buffer that matches 'stat' but found none; did you mean 'state'?",
        id="no-match",
    ),
    pytest.param(
        lambda m: ({"get": m.get}, [pa.Arena("s", ["zzz*"])]),
        "arena 's': expected a buffer that matches 'zzz*' but found none; there are 'state'",
        id="no-match-nothing-near",
    ),
    pytest.param(
        lambda m: ({"get": m.get}, [pa.Arena("s", ["state"]), pa.Arena("s", ["state"])]),
        "arena 's': expected a unique name but found it twice",
        id="duplicate-arena",
    ),
    pytest.param(
        lambda m: ({"get": m.get}, [pa.Arena("s", ["state"]), pa.Arena("t", ["*"])]),
        "buffer 'state': expected to be in one arena but found it in 's' and 't'",
        id="buffer-in-two-arenas",
    ),
    pytest.param(
        lambda m: ({"get": m.get}, [pa.Arena("s"), pa.Arena("t")]),
        "expected at most one arena without buffers=[...] but found 's' and 't'",
        id="two-catch-alls",
    ),
    pytest.param(
        lambda m: ({}, []), "expected at least one entry point but found none", id="no-entry-point"
    ),
    pytest.param(
        lambda m: ({"": m.get}, []), "expected the name of a method but found ''", id="no-name"
    ),
    pytest.param(
        lambda m: ({"get": m.get}, pa.Arena("s")),
        "expected a list of arenas but found Arena(name='s'",
        id="one-arena",
    ),
    pytest.param(lambda m: ({"get": m.get}, ["s"]), "expected arenas but found 's'", id="no-arena"),
    pytest.param(
        lambda m: ({"f": torch.relu}, []),
        "f: expected a torch.nn.Module or a bound method of one but found "
        "<built-in method relu of type object",
        id="function",
    ),
    pytest.param(
        lambda m: ({"f": Counter.get}, []),
        "f: expected a torch.nn.Module or a bound method of one but found <function Counter.get",
        id="unbound-method",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG_USE)
def test_wrong_use_is_refused(make: Any, message: str) -> None:
    entry_points, arenas = make(Counter())
    with pytest.raises(pa.ArenaError, match=f"^{re.escape(message)}"):
        pa.export(entry_points, arenas)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        pytest.param({"name": ""}, "arena: expected a name but found ''", id="name"),
        pytest.param({"name": None}, "arena: expected a name but found None", id="no-name"),
        pytest.param(
            {"buffers": [3]},
            "arena 's': expected buffers as a list of names but found 3 in it",
            id="pattern",
        ),
        pytest.param(
            {"buffers": 3},
            "arena 's': expected buffers as a list of names but found 3",
            id="no-patterns",
        ),
        pytest.param(
            {"device": None},
            "arena 's': expected a device such as 'cpu', 'cuda' or 'cuda:1' but found None",
            id="no-device",
        ),
        pytest.param(
            {"alignment": "64"},
            "arena 's': expected an alignment that is a power of two up to 2147483648 but found "
            "'64'",
            id="alignment-text",
        ),
        pytest.param(
            {"alignment": 1 << 32},
            "arena 's': expected an alignment that is a power of two up to 2147483648 but found "
            "4294967296",
            id="alignment-large",
        ),
        pytest.param(
            {"buffers": "state"},
            "arena 's': expected buffers as a list of names but found the string 'state'; write "
            "['state']",
            id="string",
        ),
        pytest.param(
            {"alignment": 12},
            "arena 's': expected an alignment that is a power of two up to 2147483648 but found 12",
            id="alignment",
        ),
        pytest.param(
            {"alignment": 0},
            "arena 's': expected an alignment that is a power of two up to 2147483648 but found 0",
            id="alignment-0",
        ),
        pytest.param(
            {"capacity": -1},
            "arena 's': expected a capacity of at least 0 but found -1",
            id="capacity",
        ),
        pytest.param(
            {"initial": "ones"},
            "arena 's': expected initial 'values' or 'zeros' but found 'ones'",
            id="initial",
        ),
    ],
)
def test_arena_refuses(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.Arena(**{"name": "s", **kwargs})
    assert str(error.value) == message


HIDDEN = "make it a tensor and register it with register_buffer("


@pytest.mark.fault("F36")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("count", f"changes the attribute 'n', which export cannot see; {HIDDEN}'n'"),
        (
            "plain_assign",
            f"changes the attribute 'plain', which export cannot see; {HIDDEN}'plain'",
        ),
        ("late", f"changes the attribute 'late_buffer', which export cannot see; {HIDDEN}'late_b"),
        ("append", f"changes the attribute 'history', which export cannot see; {HIDDEN}'history'"),
        ("inside_object", f"changes the attribute 'note', which export cannot see; {HIDDEN}'note'"),
        ("into_set", f"changes the attribute 'seen', which export cannot see; {HIDDEN}'seen'"),
        ("class_level", f"changes the attribute 'total', which export cannot see; {HIDDEN}'total'"),
        ("mode", f"changes the attribute 'training', which export cannot see; {HIDDEN}'training'"),
        ("submodule", f"changes the attribute 'inner', which export cannot see; {HIDDEN}'inner'"),
        ("plain_tensor", "mutates a tensor that is not one ('lifted_tensor_0'), shape (2,)"),
    ],
)
def test_f36_hidden_state_is_refused(method: str, message: str) -> None:
    module = Hidden()
    before = dict(vars(module))
    with pytest.raises(pa.ArenaError, match=re.escape(message)) as error:
        pa.export(_entries(module, **{method: (X,)}))
    assert str(error.value).startswith(f"{method}: expected state in registered buffers")
    assert vars(module) == before
    assert module.n == 0
    assert module.history == []
    assert torch.equal(module.plain, torch.zeros(2))


@pytest.mark.fault("F36")
@pytest.mark.parametrize("method", ["attribute", "view", "closure", "hook"])
def test_f36_state_reached_by_another_way_is_refused(method: str) -> None:
    class Aliased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.alias = self.a
            self.part = self.a[1:]
            self.function = lambda x: self.a * x
            self.inner = nn.Identity()
            self.inner.register_forward_hook(lambda module, args, output: output + self.a)

        def write(self, x: Tensor) -> None:
            self.a.add_(x)

        def attribute(self, x: Tensor) -> Tensor:
            return self.alias * x

        def view(self, x: Tensor) -> Tensor:
            return self.part + x

        def closure(self, x: Tensor) -> Tensor:
            return self.function(x)

        def hook(self, x: Tensor) -> Tensor:
            return self.inner(x)

    module = Aliased()
    with pytest.raises(pa.ArenaError) as error:
        pa.export(_entries(module, **{"write": (X,), method: (X,)}), [pa.Arena("s", ["a"])])
    assert str(error.value) == (
        f"{method}: expected buffer 'a' to be read through the module but found it read through an "
        f"attribute that is no registered buffer, a closure or a hook, which export takes for a "
        f"constant; use the buffer itself, or register the attribute with register_buffer"
    )


def test_state_in_the_memory_of_a_parameter_is_refused() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("w", self.linear.weight.data)

        def update(self) -> None:
            self.w.mul_(2.0)

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"update": Weights().update}, [pa.Arena("s", ["w"])])
    assert str(error.value) == (
        "buffer 'w': expected state with memory of its own but found that it shares memory with "
        "the parameter 'linear.weight'; clone() one of the two"
    )


def test_missing_arenas_are_refused() -> None:
    module = Counter()
    entries = _entries(module, forward=(torch.ones(2, 2),), get=(), reset=())
    exported = pa.export(entries, [pa.Arena("s", ["state"])])
    edge = to_edge_transform_and_lower(exported.programs)
    other = pa.export({"get": module.get}, [pa.Arena("s", ["state"])])
    for arenas, method in (((), "forward"), (other.arenas, "forward")):
        with pytest.raises(pa.ArenaError) as error:
            pa.to_executorch(edge, arenas)
        assert str(error.value) == (
            f"{method}: expected an arena that holds buffer 'state', as at its export, but found "
            f"none; pass the arenas of that export: to_executorch(edge, exported.arenas)"
        )


def test_what_is_no_lowered_program_is_refused() -> None:
    module = Counter()
    exported = pa.export({"get": module.get}, [pa.Arena("s", ["state"])])
    edge = to_edge_transform_and_lower(exported.programs)
    refused: list[tuple[Any, Any, str]] = [
        (
            exported.programs,
            exported.arenas,
            (
                "expected lowered programs (an EdgeProgramManager) but found dict; lower them with "
                "to_edge_transform_and_lower"
            ),
        ),
        (edge, exported, "expected a list of arenas but found an Exported; pass its .arenas"),
        (edge, 3, "expected a list of arenas but found 3"),
    ]
    for programs, arenas, message in refused:
        with pytest.raises(pa.ArenaError) as error:
            pa.to_executorch(programs, arenas)
        assert str(error.value) == message


def test_lowered_programs_stay_as_they_are() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("a", torch.zeros(1, 2))

        def forward(self, x: Tensor) -> Tensor:
            self.a.add_(self.linear(x))
            return self.a * 1

    exported = pa.export(
        {"forward": pa.EntryPoint(Net(), (torch.ones(1, 2),))}, [pa.Arena("s", ["a"])]
    )
    edge = to_edge_transform_and_lower(exported.programs)
    first = pa.to_executorch(edge, exported.arenas).buffer
    folding = ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True)
    pa.to_executorch(edge, exported.arenas, folding)
    assert pa.to_executorch(edge, exported.arenas).buffer == first
    with pytest.raises(Exception, match=r"pte_arenas.*read"):
        edge.to_executorch()
    with pytest.raises(pa.ArenaError) as error:
        pa.to_executorch(edge, exported.arenas)
    assert str(error.value) == (
        "forward: expected a lowered program but found one that edge.to_executorch() has worked "
        "on, which changes it; lower the exported programs again"
    )


def test_entry_point_refuses() -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.EntryPoint(Counter().forward, torch.ones(2, 2))  # type: ignore[arg-type]
    assert str(error.value) == (
        "entry point: expected args as a tuple but found Tensor; for one argument write (x,)"
    )


def test_a_root_inside_another_root() -> None:
    module = Nested()
    entries = {
        "step": pa.EntryPoint(module.step, (torch.ones(2, 2),)),
        "left": pa.EntryPoint(module.left, (torch.ones(2, 2),)),
        "reset": pa.EntryPoint(module.right.reset),
    }
    exported = pa.export(entries, [pa.Arena("s", ["left.state", "right.state"])])
    assert [buffer.name for buffer in exported.arenas[0].buffers] == ["left.state", "right.state"]
    session = _run(exported)
    for _ in range(2):
        _same(session.execute("step", (torch.ones(2, 2),)), module.step(torch.ones(2, 2)))
        _same(session.execute("left", (torch.ones(2, 2),)), module.left(torch.ones(2, 2)))
        session.execute("reset", ())
        module.right.reset()


@pytest.mark.fault("F14")
def test_f14_assigned_parameter_is_refused() -> None:
    class Assigning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.zeros(2))

        def step(self, x: Tensor) -> Tensor:
            self.p = nn.Parameter(self.p + x, requires_grad=False)
            return x * 1

    with pytest.raises(pa.ArenaError) as error:
        pa.export(_entries(Assigning(), step=(X,)))
    assert str(error.value) == (
        "step: expected parameters to stay as they are but found that the method assigns 'p'; "
        "state must be a buffer: register_buffer instead of a Parameter"
    )


@pytest.mark.fault("F14")
def test_f14_mutated_parameter_is_refused() -> None:
    class Mutating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.inner.weight[0].add_(x)
            return self.inner(x)

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"forward": pa.EntryPoint(Mutating(), (X,))})
    assert str(error.value) == (
        "forward: expected parameters to stay as they are but found that the method mutates "
        "'inner.weight'; state must be a buffer: register_buffer instead of a Parameter"
    )


def test_a_dtype_that_files_do_not_have_is_refused() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("z", torch.zeros(2, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            self.z.copy_(x)
            return x * 1

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"forward": pa.EntryPoint(Complex(), (X,))}, [pa.Arena("s", ["z"])])
    assert str(error.value) == (
        "buffer 'z': expected a dtype that program files have but found complex64; keep it as "
        "another one, such as the parts of complex numbers as floats (torch.view_as_real)"
    )


def test_a_branch_that_writes_is_refused() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            def add(x: Tensor) -> Tensor:
                self.a.add_(x)
                return x * 1

            return torch.cond(x.sum() > 0, add, lambda x: x * 2, (x,))

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"forward": pa.EntryPoint(Branch(), (X,))}, [pa.Arena("s", ["a"])])
    assert str(error.value) == (
        "forward: expected branches and loop bodies to change no tensor from outside but found one "
        "that does; return the new value from it, and write it to the buffer afterwards"
    )


@pytest.mark.fault("F14")
@pytest.mark.parametrize("name", ["a", "p"])
def test_writes_through_data_are_refused(name: str) -> None:
    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.p = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            getattr(self, name).data.add_(x)
            return getattr(self, name) * 1

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"forward": pa.EntryPoint(Hides(), (X,))}, [pa.Arena("s", ["a"])])
    assert str(error.value) == (
        "forward: expected state to change through its buffer but found a write that export cannot "
        "see, such as one through .data; use the buffer itself (self.state.add_(x)), and "
        "register_buffer instead of a Parameter"
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before 3.11")
def test_errors_of_export_name_the_method() -> None:
    class Decides(nn.Module):
        def step(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(Exception, match="data-dependent") as error:
        pa.export(_entries(Decides(), step=(X,)))
    assert "while exporting method 'step'" in error.value.__notes__


def test_a_compiled_module_is_refused() -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.export({"get": pa.EntryPoint(torch.compile(Counter()), (torch.ones(2, 2),))})
    assert str(error.value) == (
        "get: expected a module as it was written but found one that torch.compile made; give the "
        "module that was compiled"
    )


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "the meta device"),
    ],
)
def test_buffers_without_dense_values_are_refused(values: Tensor, found: str) -> None:
    module = Counter()
    module.register_buffer("other", values)
    with pytest.raises(pa.ArenaError) as error:
        pa.export({"get": module.get}, [pa.Arena("s", ["state"])])
    assert str(error.value) == (
        f"buffer 'other': expected a dense tensor with values but found {found}; make it one, or "
        f"take it out of the module"
    )


def test_quantised_weights_beside_state() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4, bias=False)
            self.register_buffer("a", torch.zeros(1, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.a.add_(self.linear(x))
            return self.a * 1

    module = Net().eval()
    quantize_(module, Int8WeightOnlyConfig())
    eager = copy.deepcopy(module)
    x = torch.arange(4.0).view(1, 4)
    exported = pa.export({"forward": pa.EntryPoint(module, (x,))}, [pa.Arena("s", ["a"])])
    session = _run(exported)
    for step in range(3):
        (have,) = session.execute("forward", (x * step,))
        torch.testing.assert_close(have, eager(x * step), rtol=1e-5, atol=1e-5)


def test_lengths_and_items_fill_state() -> None:
    class Lengths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros((), dtype=torch.int64))
            self.register_buffer("f", torch.zeros(2))

        def prefill(self, x: Tensor) -> Tensor:
            self.n.fill_(x.shape[0])
            return x * 1

        def item(self) -> Tensor:
            self.f.fill_(self.n.item())
            return self.f * 1

    module, eager = Lengths(), Lengths()
    length = torch.export.Dim("length", min=2, max=8)
    exported = pa.export(
        {
            "prefill": pa.EntryPoint(
                module.prefill, (torch.ones(3),), dynamic_shapes=({0: length},)
            ),
            "item": module.item,
        },
        [pa.Arena("s", ["n", "f"])],
    )
    session = _run(exported)
    for size in (5, 8, 2):
        _same(session.execute("prefill", (torch.ones(size),)), eager.prefill(torch.ones(size)))
        _same(session.execute("item"), eager.item())


def test_an_arena_that_finds_nothing_is_announced() -> None:
    with pytest.warns(UserWarning, match="arena 's' holds nothing: no buffer is changed by one"):
        pa.export({"get": Counter().get}, [pa.Arena("s")])


def test_private_copies_are_announced() -> None:
    with pytest.warns(UserWarning, match="no arena holds it") as caught:
        pa.export(_entries(Counter(), forward=(torch.ones(2, 2),), get=(), reset=()))
    (warning,) = [w for w in caught if "no arena holds it" in str(w.message)]
    assert str(warning.message) == (
        "buffer 'state' is used by the methods 'forward', 'get', 'reset' and some of them change "
        "it, but no arena holds it: each method will have its own copy; declare "
        "pte_arenas.Arena(..., buffers=['state']) to share it"
    )
    assert warning.filename == __file__


def test_a_method_may_do_nothing() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2, 3))
            self.register_buffer("b", torch.zeros(2))

        def idle(self) -> None:
            self.a.t()

        def step(self) -> Tensor:
            self.b.add_(1.0)
            return self.b * 1

    module = Idle()
    session = _run(pa.export({"idle": module.idle, "step": module.step}, [pa.Arena("s", ["*"])]))
    assert session.execute("idle", ()) == [None]
    _same(session.execute("step", ()), torch.ones(2))


def test_two_roots_share_a_submodule() -> None:
    shared = Shared()
    forwarding, resetting = Forwarding(shared), Resetting(shared)
    exported = pa.export(
        {
            "forward": pa.EntryPoint(forwarding, (X,)),
            "twice": pa.EntryPoint(forwarding.twice, (X,)),
            "reset": resetting.reset,
            "peek": pa.EntryPoint(resetting.peek),
        },
        [pa.Arena("s", ["core.state"])],
    )
    (buffer,) = exported.arenas[0].buffers
    assert buffer.name == "core.state"
    assert buffer.fqns == {
        "forward": "core.state",
        "twice": "core.state",
        "reset": "inner.shared.state",
        "peek": "inner.shared.state",
    }
    session = _run(exported)
    with torch.no_grad():
        for step in range(3):
            x = X * step
            _same(session.execute("forward", (x,)), forwarding(x))
            _same(session.execute("peek", ()), resetting.peek())
            _same(session.execute("twice", (x,)), forwarding.twice(x))
            if step == 1:
                session.execute("reset", ())
                resetting.reset()
    _same(session.execute("peek", ()), resetting.peek())


def _same(outputs: Any, expected: Tensor) -> None:
    (output,) = outputs
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)


def test_one_name_for_two_tensors_is_refused() -> None:
    one, other = Counter(), Counter()
    with pytest.raises(pa.ArenaError) as error:
        pa.export({"one": one.get, "other": other.get}, [pa.Arena("s", ["state"])])
    assert str(error.value) == (
        "buffer 'state': expected one tensor but found 2 different ones in the modules of the "
        "entry points; share one tensor between the modules, or rename one of the buffers"
    )


def test_tied_buffers_are_one_slot() -> None:
    exported = pa.export(_entries(Tied(), forward=(torch.ones(6),), get=()), [pa.Arena("s", ["b"])])
    (buffer,) = exported.arenas[0].buffers
    assert buffer.name == "a"
    assert buffer.values.tolist() == [0, 1, 2, 3, 4, 5]


def test_tied_buffers_in_two_arenas_are_refused() -> None:
    with pytest.raises(pa.ArenaError, match="buffer 'a': expected to be in one arena but found it"):
        pa.export({"get": Tied().get}, [pa.Arena("s", ["a"]), pa.Arena("t", ["middle"])])


def test_partly_shared_memory_is_refused() -> None:
    class Overlapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.zeros(6)
            self.register_buffer("low", memory[:4])
            self.register_buffer("high", memory[2:])
            self.register_buffer("apart", memory[4:5])

        def step(self) -> None:
            self.low.add_(1.0)

    with pytest.raises(pa.ArenaError) as error:
        pa.export({"step": Overlapping().step}, [pa.Arena("s")])
    assert str(error.value) == (
        "buffers 'low' and 'high' share memory: expected one of them to be all of it, contiguous, "
        "and the other a slice of it with the same dtype; register the whole tensor as a buffer of "
        "the same module, or clone() one of the two"
    )


def test_parts_of_one_tensor_are_apart() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            one, two = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
            self.register_buffer("one", one)
            self.register_buffer("two", two)

        def step(self, x: Tensor) -> Tensor:
            self.one.add_(x)
            return self.one + self.two

    module = Halves()
    session = _run(pa.export(_entries(module, step=(X,)), [pa.Arena("s", ["*"])]))
    for _ in range(2):
        _same(session.execute("step", (X,)), module.step(X))


def test_module_stays_as_it_was() -> None:
    module = Nested()
    module.lock = threading.Lock()  # type: ignore[assignment]
    module.scale = nn.Parameter(torch.ones(1))
    tensors = {name: id(tensor) for name, tensor in module.state_dict(keep_vars=True).items()}
    values = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    classes = [type(each) for each in module.modules()]
    pa.export(_entries(module, step=(torch.ones(2, 2),), get=()), [pa.Arena("s", ["*.state"])])
    assert {name: id(t) for name, t in module.state_dict(keep_vars=True).items()} == tensors
    assert all(torch.equal(module.state_dict()[name], value) for name, value in values.items())
    assert [type(each) for each in module.modules()] == classes
    assert module.scale.requires_grad


def test_initial_values_are_those_at_the_export() -> None:
    module = Counter()
    exported = pa.export(_entries(module, forward=(torch.ones(2, 2),), get=()), [pa.Arena("s")])
    module.forward(torch.ones(2, 2))
    _same(_run(exported).execute("get", ()), torch.full((2, 2), 5.0))


def test_state_that_a_call_has_left_with_gradients() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(2, 2)
            self.scale = self.linear.weight.sum() * 1  # requires grad, and is no leaf
            self.register_buffer("h", torch.zeros(1, 2))

        def forward(self, x: Tensor) -> Tensor:
            self.h.copy_(torch.tanh(self.linear(x) + self.h))
            return self.h * self.scale

    x = torch.ones(1, 2, requires_grad=True)
    module = Net()
    module(x)
    assert module.h.requires_grad
    exported = pa.export({"forward": pa.EntryPoint(module, (x,))}, [pa.Arena("s", ["h"])])
    assert module.h.requires_grad
    session = _run(exported)
    for _ in range(2):
        (have,) = session.execute("forward", (x.detach(),))
        torch.testing.assert_close(have, module(x).detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("outer", ["grad", "no_grad"])
def test_grad_mode_of_the_caller_does_not_matter(outer: str) -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("a", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.a.add_(self.linear(x))
            return self.a * 1

        @torch.no_grad()
        def decorated(self, x: Tensor) -> Tensor:
            self.a.mul_(self.linear(x))
            return self.a * 1

    module = Trained()
    modes = {"grad": torch.enable_grad, "no_grad": torch.no_grad}
    with modes[outer]():
        exported = pa.export(_entries(module, forward=(X,), decorated=(X,)), [pa.Arena("s", ["a"])])
        session = _run(exported)
    for _ in range(2):
        _same(session.execute("forward", (X,)), module(X).detach())
        _same(session.execute("decorated", (X,)), module.decorated(X))


def test_keyword_arguments_and_dynamic_shapes() -> None:
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x: Tensor, *, gain: Tensor, mix: float = 0.5) -> Tensor:
            y = x * gain + self.last * mix
            self.last.copy_(x[-1])
            return y

    module, length = Filter(), torch.export.Dim("length", min=1, max=16)
    exported = pa.export(
        {
            "forward": pa.EntryPoint(
                module.forward,
                (torch.ones(3, 2),),
                {"gain": X, "mix": 0.25},
                {"x": {0: length}, "gain": None, "mix": None},
            )
        },
        [pa.Arena("s", ["last"])],
    )
    session = _run(exported)
    for rows in (1, 5, 16, 2):
        x = torch.arange(2.0 * rows).view(rows, 2)
        _same(session.execute("forward", (x, X, 0.25)), module(x, gain=X, mix=0.25))


def test_forward_hooks_run_for_a_module() -> None:
    module = Counter()
    module.register_forward_hook(lambda module, args, output: output + 100)
    exported = pa.export(
        {"forward": pa.EntryPoint(module, (torch.ones(2, 2),))}, [pa.Arena("s", ["*"])]
    )
    _same(_run(exported).execute("forward", (torch.ones(2, 2),)), torch.full((2, 2), 112.0))


def test_programs_have_the_users_names() -> None:
    module = Nested()
    exported = pa.export(_entries(module, step=(torch.ones(2, 2),)), [pa.Arena("s", ["*.state"])])
    signature = exported.programs["step"].graph_signature
    assert set(signature.inputs_to_buffers.values()) == {"left.state", "right.state", "right.extra"}


def test_a_buffer_named_like_an_input_keeps_its_name_as_a_slot() -> None:
    exported = pa.export(_entries(NamedLikeInput(), forward=(X,)), [pa.Arena("s", ["x"])])
    (buffer,) = exported.arenas[0].buffers
    assert buffer.name == "x"


@given(st.data())
def test_view_steps_make_the_view(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    base = torch.arange(torch.Size(sizes).numel())
    view = base.view(sizes)
    for dim in range(view.dim()):
        start = data.draw(st.integers(0, view.shape[dim] - 1))
        stop = data.draw(st.integers(start + 1, view.shape[dim]))
        step = data.draw(st.integers(1, 3))
        view = view[(slice(None),) * dim + (slice(start, stop, step),)]
    view = view.permute(data.draw(st.permutations(range(view.dim()))))
    if view.dim() > 1 and data.draw(st.booleans()):
        view = view.select(data.draw(st.integers(0, view.dim() - 1)), 0)
    steps = view_steps(sizes, View(tuple(view.shape), tuple(view.stride()), view.storage_offset()))
    made = base.view(sizes)
    assert steps is not None
    for name, *args in steps:
        function = {"slice": torch.ops.aten.slice.Tensor}.get(name) or getattr(torch, name, None)
        made = made.reshape(args[0]) if name == "view" else function(made, *args)
    assert torch.equal(made, view)
