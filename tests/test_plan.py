"""The planner against a checker that shares no code with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pte_arenas as pa
from pte_arenas.plan import ArenaPlan, Block, plan_arena


def problems(blocks: Sequence[Block], plan: ArenaPlan, alignment: int) -> list[str]:
    """What is wrong with a plan, found by comparing every byte range with every other."""
    found = []
    ranges = [
        range(offset, offset + block.nbytes)
        for block, offset in zip(blocks, plan.offsets, strict=True)
    ]
    for block, bytes_ in zip(blocks, ranges, strict=True):
        if bytes_.start < 0 or bytes_.start + block.nbytes > plan.size:
            found.append(f"{block.name} is outside")
        if bytes_.start % block.width or bytes_.start % min(16, alignment):
            found.append(f"{block.name} is not aligned")
    for (i, one), (j, other) in combinations(enumerate(ranges), 2):
        if max(one.start, other.start) < min(one.stop, other.stop):
            found.append(f"{blocks[i].name} and {blocks[j].name} overlap")
        if one.start > other.start:
            found.append(f"{blocks[j].name} is out of order")
    if plan.size != max((bytes_.start + len(bytes_) for bytes_ in ranges), default=0):
        found.append("the arena does not end with its last slot")
    return found


ALIGNMENTS = st.sampled_from([8, 16, 32, 64, 4096])
BLOCKS = st.lists(
    st.builds(
        lambda count, width: (count * width, width),
        st.integers(0, 70) | st.integers(0, 2**40),
        st.sampled_from([1, 2, 4, 8]),
    ),
    max_size=12,
).map(lambda sizes: [Block(f"b{i}", *size) for i, size in enumerate(sizes)])


@given(BLOCKS, ALIGNMENTS)
def test_any_plan_is_sound(blocks: list[Block], alignment: int) -> None:
    plan = plan_arena("a", blocks, alignment=alignment)
    assert problems(blocks, plan, alignment) == []
    assert plan_arena("a", list(blocks), alignment=alignment) == plan


@given(BLOCKS.filter(lambda blocks: len(blocks) <= 5), ALIGNMENTS)
def test_no_other_order_saves_16_bytes(blocks: list[Block], alignment: int) -> None:
    sizes = {plan_arena("a", order, alignment=alignment).size for order in permutations(blocks)}
    assert max(sizes) - min(sizes) < 16


@given(BLOCKS, st.sampled_from([1, 2, 4]))
def test_small_alignments_hold_small_elements(blocks: list[Block], alignment: int) -> None:
    fitting = [block for block in blocks if block.width <= alignment]
    assert problems(fitting, plan_arena("a", fitting, alignment=alignment), alignment) == []


@pytest.mark.parametrize(
    ("sizes", "alignment", "offsets", "size"),
    [
        pytest.param([], 64, (), 0, id="nothing"),
        pytest.param([(0, 4)], 64, (0,), 0, id="empty-slot"),
        pytest.param([(1024, 4), (256, 4)], 64, (0, 1024), 1280, id="voice-activity"),
        pytest.param([(3, 1), (8, 8)], 64, (0, 16), 24, id="3-bytes-before-int64"),
        pytest.param([(8, 8), (3, 1)], 64, (0, 16), 19, id="no-slack-behind"),
        pytest.param([(3, 1), (8, 8)], 8, (0, 8), 16, id="alignment-8"),
        pytest.param([(3, 1), (1, 1)], 1, (0, 3), 4, id="alignment-1"),
        pytest.param([(16, 4), (0, 4), (4, 4)], 64, (0, 16, 16), 20, id="empty-between"),
        pytest.param([(2**33, 1), (1, 1)], 64, (0, 2**33), 2**33 + 1, id="beyond-32-bits"),
    ],
)
def test_places(
    sizes: list[tuple[int, int]], alignment: int, offsets: tuple[int, ...], size: int
) -> None:
    blocks = [Block(f"b{i}", *each) for i, each in enumerate(sizes)]
    assert plan_arena("a", blocks, alignment=alignment) == ArenaPlan(offsets, size)


def test_fits_its_capacity_exactly() -> None:
    assert plan_arena("a", [Block("x", 16), Block("y", 3)], capacity=19).size == 19


def test_refuses_more_than_the_capacity() -> None:
    blocks = [Block("d", 8), Block("a", 1), Block("c", 40), Block("b", 40)]
    with pytest.raises(pa.ArenaError) as caught:
        plan_arena("state", blocks, capacity=119)
    assert str(caught.value) == (
        "arena 'state': expected at most its capacity of 119 bytes but found 120; the largest are "
        "'b' with 40 bytes, 'c' with 40 bytes, 'd' with 8 bytes: raise the capacity or leave "
        "buffers out"
    )


def test_refuses_elements_wider_than_the_alignment() -> None:
    with pytest.raises(pa.ArenaError) as caught:
        plan_arena("state", [Block("n", 8, 8)], alignment=4)
    assert str(caught.value) == (
        "arena 'state': expected an alignment of at least 8 for 'n' but found 4"
    )
