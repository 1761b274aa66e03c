"""The parts of the Silero VAD example that need no program: recording, spans, picture."""

from __future__ import annotations

import itertools
import wave
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples.silero_vad.picture import ASCII, UNICODE, Track, choose_glyphs, draw_tracks
from examples.silero_vad.recording import RecordingError, read_recording, split_chunks
from examples.silero_vad.spans import CHUNK_SECONDS, find_spans

if TYPE_CHECKING:
    from pathlib import Path


def write_wav(
    path: Path, frames: bytes, *, rate: int = 16_000, channels: int = 1, width: int = 2
) -> Path:
    with wave.open(str(path), "wb") as recording:
        recording.setnchannels(channels)
        recording.setframerate(rate)
        recording.setsampwidth(width)
        recording.writeframes(frames)
    return path


def test_samples_are_scaled_to_one(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", bytes.fromhex("0080 0000 0040 ff7f"))
    assert read_recording(path).tolist() == [-1.0, 0.0, 0.5, 32767 / 32768]


@pytest.mark.parametrize(
    ("rate", "channels", "width", "message"),
    [
        pytest.param(
            44_100, 1, 2, "expected 16,000 samples per second but found 44,100", id="rate"
        ),
        pytest.param(16_000, 2, 2, "expected 1 channel but found 2", id="stereo"),
        pytest.param(16_000, 1, 1, "expected 2 bytes per sample but found 1", id="8-bit"),
    ],
)
def test_another_kind_of_recording_is_refused(
    tmp_path: Path, rate: int, channels: int, width: int, message: str
) -> None:
    path = write_wav(tmp_path / "a.wav", bytes(8), rate=rate, channels=channels, width=width)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert str(caught.value) == (
        f"{path}: {message}; convert it with `sox a.wav -r 16000 -c 1 -b 16 converted.wav`"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "expected a PCM WAV file but found none (EOFError)", id="empty"),
        pytest.param(
            b"not a wave file", "expected a PCM WAV file but found none (Error: ", id="text"
        ),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_recording_without_samples_is_refused(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", b"")
    with pytest.raises(RecordingError, match=r"a\.wav: expected at least one sample but found 0"):
        read_recording(path)


@pytest.mark.parametrize(("samples", "chunks"), [(1, 1), (512, 1), (513, 2), (1024, 2)])
def test_the_last_chunk_is_filled_with_zeros(samples: int, chunks: int) -> None:
    split = split_chunks(torch.ones(samples))
    assert split.shape == (chunks, 1, 512)
    assert split.flatten()[:samples].eq(1).all()
    assert split.flatten()[samples:].eq(0).all()


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([0.49] * 4, [], id="below-onset"),
        pytest.param([0.0, 0.5, 0.9], [(1, 3)], id="to-the-end"),
        pytest.param([0.9, 0.4, 0.3, 0.3, 0.3], [(0, 2)], id="release-below-onset"),
        pytest.param([0.9, 0.0, 0.0, 0.4, 0.0], [(0, 4)], id="short-pause"),
        pytest.param([0.9, 0.0, 0.0, 0.0, 0.9], [(0, 1), (4, 5)], id="long-pause"),
        pytest.param([0.9, 0.0, 0.0, 0.0, 0.4], [(0, 1)], id="no-onset-after-pause"),
    ],
)
def test_spans(probabilities: list[float], expected: list[tuple[int, int]]) -> None:
    spans = find_spans(probabilities, pause_chunks=3)
    assert spans == [(begin * CHUNK_SECONDS, end * CHUNK_SECONDS) for begin, end in expected]


@given(st.lists(st.floats(0, 1)), st.integers(1, 10))
def test_spans_hold_every_onset_and_stay_apart(probabilities: list[float], pause: int) -> None:
    chunks = [
        (round(span.begin / CHUNK_SECONDS), round(span.end / CHUNK_SECONDS))
        for span in find_spans(probabilities, pause_chunks=pause)
    ]
    inside = {index for begin, end in chunks for index in range(begin, end)}
    assert inside >= {index for index, value in enumerate(probabilities) if value >= 0.5}
    assert all(
        probabilities[begin] >= 0.5 and probabilities[end - 1] >= 0.35 for begin, end in chunks
    )
    assert all(left[1] + pause <= right[0] for left, right in itertools.pairwise(chunks))


def test_picture_in_unicode() -> None:
    tracks = [
        Track([0, 0.25, 0.5, 0.75, 1, 0.0625, 0, 0, 0, 0], ("1", "p 0")),
        Track([0, 0, 1, 1, 1, 0, 0, 0, 0, 0], ("speech",)),
    ]
    assert draw_tracks(tracks, seconds=2).splitlines() == [
        "      1 │   ▄█",
        "    p 0 │ ▄███▁",
        " speech │  ███",
        "        └┴────┴───┴",
        "seconds  0    1   2",
    ]


def test_picture_in_ascii_shows_the_largest_value_of_a_column() -> None:
    track = Track([0, 0.4, 0, 0, 1, 0, 0, 0.7], ("p",))
    assert draw_tracks([track], seconds=10, width=13, glyphs=ASCII).splitlines() == [
        "      p |. #:",
        "        ++---",
        "seconds  0",
    ]


@given(st.lists(st.floats(), min_size=1, max_size=300), st.integers(20, 200), st.floats(0.03, 1e5))
def test_picture_fits_its_width(values: list[float], width: int, seconds: float) -> None:
    lines = draw_tracks([Track(values, ("", "p"))], seconds, width=width).splitlines()
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [("utf-8", UNICODE), ("cp437", ASCII), ("ascii", ASCII), ("no-such", ASCII), (None, ASCII)],
)
def test_glyphs_follow_the_encoding_of_the_output(encoding: str | None, glyphs: object) -> None:
    assert choose_glyphs(encoding) is glyphs
