"""A recording as the detector hears it: samples, chunk by chunk."""

from __future__ import annotations

import sys
import wave
from array import array
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from examples.silero_vad.model import CHUNK_SAMPLES, SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SPEECH = Path(__file__).with_name("speech.wav")
"""Three sentences and a burst of noise; README.md says how it was made."""


class RecordingError(ValueError):
    """A file that is not a 16 kHz mono recording of 16 bits, and what was found instead."""


def read_recording(path: Path) -> Tensor:
    """Returns the samples of a 16 kHz mono WAV file, float32 in [-1, 1).

    Raises:
        RecordingError: The file is no such recording.
        OSError: The file cannot be read.
    """
    try:
        with wave.open(str(path), "rb") as recording:
            _require(path, "1 channel", recording.getnchannels(), 1)
            _require(path, "16,000 samples per second", recording.getframerate(), SAMPLE_RATE)
            _require(path, "2 bytes per sample", recording.getsampwidth(), 2)
            frames = recording.readframes(recording.getnframes())
    except (wave.Error, EOFError) as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise RecordingError(
            f"{path}: expected a PCM WAV file but found none ({reason})"
        ) from error
    samples = array("h", frames[: len(frames) // 2 * 2])
    if sys.byteorder == "big":  # WAV is little-endian
        samples.byteswap()
    if not samples:
        raise RecordingError(f"{path}: expected at least one sample but found 0")
    return torch.tensor(samples, dtype=torch.float32) / 32768


def split_chunks(samples: Tensor) -> Tensor:
    """Returns `samples` as chunks of the detector, `(n, 1, 512)`, zeros after the last sample."""
    missing = -len(samples) % CHUNK_SAMPLES
    return torch.nn.functional.pad(samples, (0, missing)).view(-1, 1, CHUNK_SAMPLES)


def stream(detect: Callable[[Tensor], Tensor], chunks: Iterable[Tensor]) -> Tensor:
    """Returns what `detect` says of every chunk, `(n,)`, called in their order."""
    with torch.no_grad(), _one_thread():
        return torch.cat([detect(chunk) for chunk in chunks]).flatten()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps PyTorch to one thread: a network this small waits for a second one in every layer.

    On a busy machine the waiting takes a hundred times as long as the work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _require(path: Path, expected: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise RecordingError(
            f"{path}: expected {expected} but found {found:,}; "
            f"convert it with `sox {path.name} -r 16000 -c 1 -b 16 converted.wav`"
        )
