"""Random small programs against eager, each in another combination of options."""

from __future__ import annotations

import itertools
import os

import pytest
from against_eager import LOAD_ORDERS, Model, check_calls, eager_outputs
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from random_programs import generate

import pte_arenas as pa
from pte_arenas.runtime import load_program

COUNT = int(os.environ.get("PTE_ARENAS_RANDOM_PROGRAMS", "200"))
FIRST = int(os.environ.get("PTE_ARENAS_FIRST_PROGRAM", "0"))
# Every pair of options meets within a few seeds, since all combinations take turns.
COMBINATIONS = list(
    itertools.product([True, False], [False, True], ["portable", "xnnpack"], LOAD_ORDERS)
)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_program(seed: int) -> None:
    in_place, scratch, backend, load_order = COMBINATIONS[seed * 7 % len(COMBINATIONS)]
    generated = generate(seed)
    methods = {name: generated.arguments(name, 0) for name in generated.methods}
    model = Model(
        generated.make,
        methods,
        [(name, generated.arguments(name, input_seed)) for name, input_seed in generated.calls],
        tolerance=1e-5,
    )
    eager_outputs(model)  # a program that eager refuses is a mistake of the generator
    module = generated.make()
    arenas = [pa.Arena("state", ["*"])]
    if scratch:
        arenas.append(pa.Arena("scratch", lifetime="scratch"))
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in methods.items()}, arenas
    )
    partitioner = [XnnpackPartitioner()] if backend == "xnnpack" else None
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioner)
    emitted = pa.to_executorch(edge, exported.arenas, in_place=in_place)
    check_calls(model, load_program(emitted.buffer).session(), load_order)
