"""An encoder and a decoder: the keys and values of the source are written by one, read by another.

Nothing copies them between the two methods.
"""

from __future__ import annotations

import functools

import pytest
import torch
from emitted_calls import Call, calls_of, plan_of
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Session, load_program

WIDTH, HEADS, SOURCE, TARGET, VOCABULARY, LAYERS = 32, 2, 24, 16, 20, 2
HEAD = WIDTH // HEADS
CROSS = [f"layers.{layer}.cross.{name}" for layer in range(LAYERS) for name in ("keys", "values")]
CROSS_BYTES = SOURCE * WIDTH * 4


class Memory(nn.Module):
    """Keys and values of one attention, head by head, keys transposed."""

    keys: Tensor
    values: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(HEADS, HEAD, length))
        self.register_buffer("values", torch.zeros(HEADS, length, HEAD))
        self.to_keys = nn.Linear(WIDTH, WIDTH)
        self.to_values = nn.Linear(WIDTH, WIDTH)

    def fill(self, x: Tensor) -> None:
        self.keys.copy_(self.to_keys(x).view(-1, HEADS, HEAD).permute(1, 2, 0))
        self.values.copy_(self.to_values(x).view(-1, HEADS, HEAD).transpose(0, 1))

    def append(self, x: Tensor, position: Tensor) -> None:
        self.keys.index_copy_(2, position, self.to_keys(x).view(HEADS, HEAD, 1))
        self.values.index_copy_(1, position, self.to_values(x).view(HEADS, 1, HEAD))

    def attend(self, query: Tensor, mask: Tensor) -> Tensor:
        scores = torch.bmm(query.view(HEADS, 1, HEAD), self.keys) * HEAD**-0.5
        weights = torch.where(mask, scores, -1e9).softmax(-1)
        return torch.bmm(weights, self.values).view(1, WIDTH)


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.past, self.cross = Memory(TARGET), Memory(SOURCE)
        self.queries = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, position: Tensor, source_mask: Tensor) -> Tensor:
        self.past.append(x, position)
        x = x + self.past.attend(self.queries[0](x), torch.arange(TARGET) <= position)
        x = x + self.cross.attend(self.queries[1](x), source_mask)
        return x + torch.relu(self.output(x))


class Translator(nn.Module):
    """Encodes a source once, then decodes it token by token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.requires_grad_(requires_grad=False)

    def encode(self, source: Tensor) -> Tensor:
        x = self.encoder(self.embedding(source))
        for layer in self.layers:
            layer.cross.fill(x)
        return x.mean(0)

    def decode(self, token: Tensor, position: Tensor, length: Tensor) -> Tensor:
        x = self.embedding(token)
        source_mask = torch.arange(SOURCE) < length
        for layer in self.layers:
            x = layer(x, position, source_mask)
        return self.head(x)


def source(seed: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (SOURCE,), generator=torch.Generator().manual_seed(seed))


def step(token: int, position: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor([token]), torch.tensor([position]), torch.tensor([length])


@functools.cache
def emitted(kind: str) -> pa.ArenaProgramManager:
    module = Translator()
    exported = pa.export(
        {
            "encode": pa.EntryPoint(module.encode, (source(0),)),
            "decode": pa.EntryPoint(module.decode, step(0, 0, SOURCE)),
        },
        [pa.Arena("cross", ["*.cross.*"]), pa.Arena("past", ["*.past.*"])],
    )
    partitioner = [XnnpackPartitioner()] if kind == "xnnpack" else None
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioner)
    return pa.to_executorch(edge, exported.arenas)


def translate(module: Translator, session: Session, seed: int, length: int) -> None:
    """Encodes a source and decodes some tokens greedily, in eager and on the session."""
    with torch.no_grad():
        summary = module.encode(source(seed))
    (encoded,) = session.execute("encode", (source(seed),))
    torch.testing.assert_close(encoded, summary, rtol=0, atol=1e-5)
    token = seed % VOCABULARY
    for position in range(6):
        inputs = step(token, position, length)
        with torch.no_grad():
            expected = module.decode(*inputs)
        (logits,) = session.execute("decode", inputs)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
        token = int(expected.argmax())
    for name in CROSS:
        wish = module.get_buffer(name)
        assert wish.any()
        torch.testing.assert_close(session.arena("cross")[name].tensor, wish, rtol=0, atol=1e-5)


kinds = pytest.mark.parametrize("kind", ["portable", "xnnpack"])


@kinds
@pytest.mark.parametrize("load_order", ["all_first", "lazy", "reload"])
def test_decoding_sees_what_was_encoded(kind: str, load_order: str) -> None:
    module, session = Translator(), load_program(emitted(kind).buffer).session()
    if load_order == "all_first":
        session.load_method("decode")
        session.load_method("encode")
    for seed, length in [(1, SOURCE), (2, 7), (3, 1)]:
        translate(module, session, seed, length)
        if load_order == "reload":
            session.unload_method("encode")


@kinds
def test_sources_of_two_sessions_are_their_own(kind: str) -> None:
    program = load_program(emitted(kind).buffer)
    one, other = (Translator(), program.session()), (Translator(), program.session())
    translate(*one, seed=4, length=SOURCE)
    translate(*other, seed=5, length=SOURCE)
    inputs = step(3, 6, SOURCE)
    for module, session in (one, other):
        with torch.no_grad():
            expected = module.decode(*inputs)
        (logits,) = session.execute("decode", inputs)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def cross_slots(kind: str, method: str) -> set[tuple[int, int]]:
    """Memory id and offset of each slot in a method."""
    layout = pa.read_layout(emitted(kind).buffer)
    binding = layout.method(method).bindings[0]
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
        method.name: {access.mode for access in method.bindings[0].accesses}
        for method in layout.methods
    }
    assert modes == {"encode": {"write"}, "decode": {"read"}}


@kinds
def test_encoding_computes_keys_and_values_where_they_stay(kind: str) -> None:
    calls = touching(kind, "encode")
    places = [operand.place for call in calls for operand in call.operands]
    assert cross_slots(kind, "encode") <= set(places)
    operators = {call.operator for call in calls_of(plan_of(emitted(kind), "encode"))}
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
