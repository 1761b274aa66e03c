"""An encoder and a decoder: the keys and values of the source are written by one, read by another.

Nothing copies them between the two methods.
"""

from __future__ import annotations

import functools

import pytest
import torch
from emitted_calls import Call, calls_of, plan_of
from torch import Tensor

import pte_arenas as pa
from examples.encoder_decoder import __main__ as demo
from examples.encoder_decoder.model import Config, Translator
from examples.encoder_decoder.program import export_passing, export_translator
from examples.encoder_decoder.translate import InSession, Passed, in_eager, translate
from pte_arenas.runtime import Session, load_program

CONFIG = Config(width=32, heads=2, layers=1, source=24, target=16, vocabulary=20)
CROSS = [
    f"layers.{layer}.cross.{name}" for layer in range(CONFIG.layers) for name in ("keys", "values")
]
CROSS_BYTES = CONFIG.source * CONFIG.width * 4
OTHERS = 3 * 8 + CONFIG.vocabulary * 4
"""Bytes that a step takes and returns beside state."""
ENCODE = "reset_encode_prefill"


def source(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CONFIG.vocabulary, (CONFIG.source,), generator=generator)


@functools.cache
def emitted(kind: str) -> pa.ArenaProgramManager:
    return export_translator(Translator(CONFIG), xnnpack=kind == "xnnpack")


def check(module: Translator, session: Session, seed: int, length: int) -> None:
    """Translates in eager and on the session."""
    expected = translate(in_eager(module), source(seed), length, 6)
    found = translate(InSession(session), source(seed), length, 6)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for name in CROSS:
        wish = module.get_buffer(name)
        assert wish.any()
        torch.testing.assert_close(session.arena("cross")[name].tensor, wish, rtol=0, atol=1e-5)


kinds = pytest.mark.parametrize("kind", ["portable", "xnnpack"])


@kinds
@pytest.mark.parametrize("load_order", ["all_first", "lazy", "reload"])
def test_decoding_sees_what_was_encoded(kind: str, load_order: str) -> None:
    module, session = Translator(CONFIG), load_program(emitted(kind).buffer).session()
    if load_order == "all_first":
        session.load_method("decode")
        session.load_method(ENCODE)
    for seed, length in [(1, CONFIG.source), (2, 7), (3, 1)]:
        check(module, session, seed, length)
        if load_order == "reload":
            session.unload_method(ENCODE)


@kinds
def test_sources_of_two_sessions_are_their_own(kind: str) -> None:
    program = load_program(emitted(kind).buffer)
    one, other = ((Translator(CONFIG), program.session()) for _ in range(2))
    check(*one, seed=4, length=CONFIG.source)
    check(*other, seed=5, length=CONFIG.source)
    inputs = (torch.tensor([3]), torch.tensor([6]), torch.tensor([CONFIG.source]))
    for module, session in (one, other):
        with torch.no_grad():
            expected = module.decode(*inputs)
        (logits,) = session.execute("decode", inputs)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def cross_slots(kind: str, method: str) -> set[tuple[int, int]]:
    """Memory id and offset of each slot in a method."""
    layout = pa.read_layout(emitted(kind).buffer)
    binding = next(
        one for one in layout.method(method).bindings if layout.arenas[one.arena].name == "cross"
    )
    return {(binding.memory_id, slot.offset) for slot in layout.arena("cross").slots}


def touching(kind: str, method: str) -> list[Call]:
    """The calls of a method that have a slot among their operands."""
    slots = cross_slots(kind, method)
    calls = calls_of(plan_of(emitted(kind), method))
    return [call for call in calls if any(operand.place in slots for operand in call.operands)]


@kinds
def test_layout(kind: str) -> None:
    layout = pa.read_layout(emitted(kind).buffer)
    assert [slot.fqn for slot in layout.arena("cross").slots] == CROSS
    assert {slot.nbytes for slot in layout.arena("cross").slots} == {CROSS_BYTES}
    modes = {
        (method.name, layout.arenas[binding.arena].name): {one.mode for one in binding.accesses}
        for method in layout.methods
        for binding in method.bindings
    }
    assert modes[ENCODE, "cross"] == {"write"}
    assert modes["decode", "cross"] == {"read"}
    assert modes["decode", "past"] == {"read_write"}


@kinds
def test_encoding_computes_keys_and_values_where_they_stay(kind: str) -> None:
    calls = touching(kind, ENCODE)
    places = [operand.place for call in calls for operand in call.operands]
    assert cross_slots(kind, ENCODE) <= set(places)
    operators = {call.operator for call in calls_of(plan_of(emitted(kind), ENCODE))}
    assert "aten::copy_" not in operators


@kinds
def test_decoding_reads_keys_and_values_where_they_are(kind: str) -> None:
    calls, slots = touching(kind, "decode"), cross_slots(kind, "decode")
    # One product reads each of them, and makes nothing as large of it.
    product = {"portable": "aten::bmm.out", "xnnpack": "delegate"}[kind]
    assert [call.operator for call in calls] == [product] * len(CROSS)
    for call in calls:
        (size,) = [operand.nbytes for operand in call.operands if operand.place in slots]
        assert size == CROSS_BYTES and call.result.place not in slots
        others = [operand for operand in call.operands if operand.place not in slots]
        assert all(operand.nbytes < CROSS_BYTES for operand in others)


def test_passing_moves_the_state_in_every_step() -> None:
    module = Translator(CONFIG)
    passing, changed = export_passing(module)
    assert set(changed[ENCODE]) == set(dict(module.named_buffers()))
    assert set(changed["decode"]) == {name for name in changed[ENCODE] if ".past." in name}
    state = {name: buffer.clone() for name, buffer in module.named_buffers()}
    passed = Passed(passing.buffer, state, changed)
    expected = translate(in_eager(module), source(1), 7, 6)
    torch.testing.assert_close(translate(passed, source(1), 7, 6), expected, rtol=0, atol=1e-5)
    past = CONFIG.layers * 2 * CONFIG.target * CONFIG.width * 4
    assert passed.moved == OTHERS + len(CROSS) * CROSS_BYTES + 2 * past


def test_arenas_move_no_state() -> None:
    in_session = InSession(load_program(emitted("xnnpack").buffer).session())
    translate(in_session, source(1), 7, 6)
    assert in_session.moved == OTHERS


def test_demo_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(CONFIG) == 0
    assert f"{OTHERS:,} bytes" in capsys.readouterr().out
