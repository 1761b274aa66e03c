"""Closing the holes in planned memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pte_arenas.squeeze import squeeze

SPANS = st.lists(
    st.builds(lambda begin, size: (begin, begin + size), st.integers(0, 400), st.integers(0, 60)),
    max_size=12,
)


@pytest.mark.parametrize(
    ("spans", "offsets", "end"),
    [
        pytest.param([], [], 0, id="nothing"),
        pytest.param([(0, 16), (16, 48)], [0, 16], 48, id="no holes"),
        pytest.param([(64, 80)], [0], 16, id="hole in front"),
        pytest.param([(0, 16), (64, 80), (112, 120)], [0, 16, 32], 40, id="holes between"),
        pytest.param([(0, 16), (40, 60)], [0, 24], 44, id="smaller than the alignment"),
        pytest.param([(32, 64), (48, 96), (56, 60)], [0, 16, 24], 64, id="overlaps stay"),
        pytest.param([(32, 48), (96, 96)], [0, 16], 16, id="empty tensor"),
    ],
)
def test_offsets(spans: list[tuple[int, int]], offsets: list[int], end: int) -> None:
    squeezed = squeeze(spans, 16)
    assert [squeezed[begin] for begin, _ in spans] == offsets
    assert squeezed.end == end


@given(SPANS, st.sampled_from([1, 16, 64]))
def test_overlaps_and_alignment_stay(spans: list[tuple[int, int]], alignment: int) -> None:
    squeezed = squeeze(spans, alignment)
    moved = [(squeezed[begin], squeezed[begin] + end - begin) for begin, end in spans]
    assert squeezed.end == max((end for _, end in moved), default=0)
    for (begin, end), (new_begin, new_end) in zip(spans, moved, strict=True):
        assert 0 <= new_begin <= begin
        assert (begin - new_begin) % alignment == 0
        for (other, other_end), (new_other, new_other_end) in zip(spans, moved, strict=True):
            if begin < other_end and other < end:
                assert other - begin == new_other - new_begin
            elif end <= other:
                assert new_end <= new_other
            else:
                assert other_end > begin or new_other_end <= new_begin


@given(SPANS)
def test_nothing_is_left_between(spans: list[tuple[int, int]]) -> None:
    squeezed = squeeze(spans, 1)
    used = {byte for begin, end in spans for byte in range(begin, end)}
    assert squeezed.end == len(used)
