"""`python -m examples.silero_vad`: export the detector, stream speech through it, compare."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

import pte_arenas as pa
from examples.silero_vad.model import SAMPLE_RATE, load_official_vad, load_vad
from examples.silero_vad.picture import Track, choose_glyphs, draw_tracks
from examples.silero_vad.recording import (
    SPEECH,
    RecordingError,
    read_recording,
    split_chunks,
    stream,
)
from examples.silero_vad.spans import CHUNK_SECONDS, Span, find_spans
from pte_arenas.render import draw_layout
from pte_arenas.runtime import load_program

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERANCE = 1e-4
"""Largest difference from the TorchScript model that still counts as agreeing."""

PROGRESS = Console(stderr=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns the exit status, 1 where the program disagrees with the model."""
    options = _parse(arguments)
    try:
        chunks = split_chunks(read_recording(options.wav))
        path = _write_program(options.out, xnnpack=options.xnnpack)
    except RecordingError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {(error.strerror or str(error)).lower()}")
    print(f"wrote {path}\n")
    Console().print(draw_layout(pa.read_layout(path), path.name), end="\n\n", soft_wrap=True)

    session = load_program(path).session()
    detect = session.load_method("detect")

    def run(chunk: Tensor) -> Tensor:
        probability: Tensor = detect.execute((chunk,))[0]
        return probability

    begun = time.perf_counter()
    first = _stream(run, chunks, "first pass")
    elapsed = time.perf_counter() - begun
    session.execute("reset", ())
    second = _stream(run, chunks, "second pass")

    seconds = len(chunks) * CHUNK_SECONDS
    print(
        f"{options.wav.name}  {seconds:.2f} s in {len(chunks)} chunks, heard in {elapsed:.2f} s\n"
    )
    spans = find_spans(first.tolist())
    print("\n".join(["speech, in seconds", *(f"  {span}" for span in spans)]), end="\n\n")
    print(_draw(chunks, first, spans), end="\n\n")
    return _compare(first, second, chunks)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.silero_vad",
        description="Export a voice-activity detector with one arena and stream speech through it.",
    )
    parser.add_argument(
        "--wav", type=Path, default=SPEECH, help="a recording of your own, 16 kHz, mono, 16 bits"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="folder for vad.pte (%(default)s)"
    )
    parser.add_argument("--xnnpack", action="store_true", help="lower to the XNNPACK delegate")
    return parser.parse_args(arguments)


def _write_program(folder: Path, *, xnnpack: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vad.pte"
    for name in ("torchao", "torch.utils._pytree"):  # ExecuTorch 1.5.1 imports what they warn of
        logging.getLogger(name).setLevel(logging.ERROR)
    with PROGRESS.status("exporting detect and reset over one arena"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch.export, about itself
        # Imported late: it takes seconds, and a recording of the wrong kind is refused before.
        from examples.silero_vad.program import export_vad  # noqa: PLC0415

        export_vad(load_vad(), xnnpack=xnnpack).save(str(path))
    return path


def _stream(detect: Callable[[Tensor], Tensor], chunks: Tensor, what: str) -> Tensor:
    silent = not PROGRESS.is_terminal
    bar = track(chunks, what, len(chunks), console=PROGRESS, transient=True, disable=silent)
    return stream(detect, bar)


def _draw(chunks: Tensor, probabilities: Tensor, spans: list[Span]) -> str:
    loudness = chunks.abs().amax(dim=(1, 2))
    times = [index * CHUNK_SECONDS for index in range(len(chunks))]
    spoken = [float(any(span.begin <= time < span.end for span in spans)) for time in times]
    return draw_tracks(
        [
            Track((loudness / loudness.max().clamp(min=1 / SAMPLE_RATE)).tolist(), ("sound", "")),
            Track(probabilities.tolist(), ("1.0", "", "probability", "0.0")),
            Track(spoken, ("speech",)),
        ],
        seconds=len(chunks) * CHUNK_SECONDS,
        width=min(120, shutil.get_terminal_size().columns),
        glyphs=choose_glyphs(sys.stdout.encoding),
    )


def _compare(first: Tensor, second: Tensor, chunks: Tensor) -> int:
    official = load_official_vad()
    reference = _stream(lambda chunk: official(chunk, SAMPLE_RATE), chunks, "TorchScript")
    difference = (first - reference).abs().max().item()
    same = torch.equal(first, second)
    print(f"first pass and the official TorchScript model   at most {difference:.1e} apart")
    print(
        f"first pass and the second, after reset          {'the same bits' if same else 'DIFFER'}"
    )
    if same and difference <= TOLERANCE:  # False for NaN
        return 0
    return _fail(
        f"expected the same bits from both passes and at most {TOLERANCE:.0e} from the model"
    )


def _fail(reason: str) -> int:
    print(f"error: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
