"""When somebody speaks: probabilities per chunk become spans of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from examples.silero_vad.model import CHUNK_SAMPLES, SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK_SECONDS = CHUNK_SAMPLES / SAMPLE_RATE


class Span(NamedTuple):
    """A half-open span of time in seconds, from the start of the recording."""

    begin: float
    end: float

    def __str__(self) -> str:
        """Returns the span as `[begin, end)`."""
        return f"[{self.begin:5.2f}, {self.end:5.2f})"


def find_spans(
    probabilities: Sequence[float],
    *,
    onset: float = 0.5,
    release: float = 0.35,
    pause_chunks: int = 8,
) -> list[Span]:
    """Returns the spans of speech, in order and apart.

    Args:
        probabilities: Probability of speech in each chunk of the recording.
        onset: Probability from which on speech begins.
        release: Lower probability from which on begun speech goes on, so that one doubtful chunk
            does not end it.
        pause_chunks: Chunks without speech that end a span; a shorter pause, such as the one at a
            comma, belongs to it. The default is a quarter of a second.
    """
    spans: list[Span] = []
    begin = end = None
    for index, probability in enumerate(probabilities):
        if begin is not None and end is not None and index - end >= pause_chunks:
            spans.append(_to_span(begin, end))
            begin = end = None
        if probability >= (onset if begin is None else release):
            begin = index if begin is None else begin
            end = index + 1
    if begin is not None and end is not None:
        spans.append(_to_span(begin, end))
    return spans


def _to_span(begin: int, end: int) -> Span:
    return Span(begin * CHUNK_SECONDS, end * CHUNK_SECONDS)
