"""ExecuTorch's own Llama: prefill of any length and decode over one cache, with XNNPACK."""

from __future__ import annotations

import functools

import pytest
import torch
from emitted_calls import activations, calls_of, plan_of
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass

import pte_arenas as pa
from bench.llama import (
    KV_CACHE,
    UntouchedLlama,
    export_stock,
    export_with_arena,
    lower,
    make_inputs,
    make_llama,
)
from pte_arenas.runtime import Session, load_program

# torch 2.13, in upstream's module.
pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")

METHODS = ("prefill", "decode")
CACHE_BYTES = 2 * 128 * 16 * 4
CACHES = 4


@functools.cache
def lowered() -> tuple[EdgeProgramManager, tuple[pa.SharedArena, ...]]:
    exported = export_with_arena()
    return lower(exported.programs), exported.arenas


@functools.cache
def emitted(*, in_place: bool = True) -> pa.ArenaProgramManager:
    edge, arenas = lowered()
    return pa.to_executorch(edge, arenas, without_inputs(), in_place=in_place)


def without_inputs() -> ExecutorchBackendConfig:
    """Plans activations only, so that they can be compared."""
    return ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False))


def check(session: Session, lengths: tuple[int, ...]) -> None:
    """Feeds tokens to the module and to a session; one token goes to `decode`."""
    module = make_llama()
    position = 0
    for length in lengths:
        tokens, options = make_inputs(length, position)
        with torch.no_grad():
            expected = module(tokens, options)
        method = "prefill" if length > 1 else "decode"
        (logits,) = session.execute(method, (tokens, options["input_pos"]))
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
        position += length
    arena = session.arena("kv_cache")
    for name, buffer in module.named_buffers():
        if name.endswith(("k_cache", "v_cache")):
            assert buffer.any()
            torch.testing.assert_close(arena[name].tensor, buffer, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((8, 1, 1, 1), id="prompt"),
        pytest.param((2, 1, 17, 1, 3, 1), id="dialogue"),
        pytest.param((127, 1), id="full"),
        pytest.param((1, 5), id="decode-first"),
    ],
)
def test_prefill_and_decode_share_the_cache(lengths: tuple[int, ...]) -> None:
    program = load_program(emitted().buffer)
    session, other = program.session(), program.session()
    check(other, (4, 1))  # sessions do not disturb each other
    check(session, lengths)
    session.reset()
    check(session, lengths[::-1])


def test_layout() -> None:
    layout = pa.read_layout(emitted().buffer)
    (arena,) = layout.arenas
    assert arena.name == KV_CACHE.name and arena.lifetime == "state"
    assert [slot.fqn for slot in arena.slots] == [
        f"layers.{layer}.attention.kv_cache.{name}"
        for layer in range(2)
        for name in ("k_cache", "v_cache")
    ]
    assert [slot.nbytes for slot in arena.slots] == [CACHE_BYTES] * CACHES
    for method in layout.methods:
        (binding,) = method.bindings
        assert [access.slot for access in binding.accesses] == [0, 1, 2, 3]


@pytest.mark.parametrize("method", METHODS)
def test_caches_are_written_where_they_are(method: str) -> None:
    binding = pa.read_layout(emitted().buffer).method(method).bindings[0]
    slots = {(binding.memory_id, CACHE_BYTES * index) for index in range(CACHES)}
    calls = calls_of(plan_of(emitted(), method))
    writes = [call for call in calls if call.writes_part]
    # Each cache once, by a kernel that moves the new rows only: its first argument is its result.
    assert [call.operator for call in writes] == ["pte_arenas::index_put.out"] * CACHES
    assert {call.result.place for call in writes} == slots
    assert all(call.operands[0].place == call.result.place for call in writes)
    # What else is as large as a cache and made from one: its heads, repeated for attention.
    made = {
        call.operator
        for call in calls
        if not call.writes_part
        and any(operand.place in slots for operand in call.operands)
        and call.result.nbytes >= CACHE_BYTES
        and call.result.place not in slots
    }
    assert made == {"aten::expand_copy.out"}


@pytest.mark.parametrize("method", METHODS)
def test_stock_form_computes_caches_anew(method: str) -> None:
    calls = calls_of(plan_of(emitted(in_place=False), method))
    writes = [call.operator for call in calls if call.writes_part]
    assert writes.count("aten::index_put.out") == writes.count("aten::copy_") == CACHES
    assert activations(emitted(in_place=False), method) > activations(emitted(), method)


def test_planned_bytes_are_those_of_untouched_caches() -> None:
    untouched = UntouchedLlama()
    edge = lower(export_stock(untouched, untouched.caches()))
    reference = edge.to_executorch(without_inputs())
    for method in METHODS:
        assert activations(emitted(), method) <= 1.02 * activations(reference, method)


def test_planned_bytes_are_those_of_untouched_caches_without_delegates() -> None:
    # Here both graphs are the same but for the writes; XNNPACK divides them differently.
    untouched, exported = UntouchedLlama(), export_with_arena()
    stock = export_stock(untouched, untouched.caches())["decode"]
    reference = lower({"decode": stock}, xnnpack=False).to_executorch(without_inputs())
    ours = lower({"decode": exported.programs["decode"]}, xnnpack=False)
    program = pa.to_executorch(ours, exported.arenas, without_inputs())
    assert activations(program, "decode") <= 1.02 * activations(reference, "decode")
