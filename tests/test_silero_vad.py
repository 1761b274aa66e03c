"""Silero VAD over a real recording: our program against eager PyTorch and the TorchScript model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch

import pte_arenas as pa
from examples.silero_vad import __main__ as demo
from examples.silero_vad.model import (
    CHUNK_SAMPLES,
    SAMPLE_RATE,
    SileroVad,
    load_official_vad,
    load_vad,
)
from examples.silero_vad.program import export_vad
from examples.silero_vad.recording import SPEECH, read_recording, split_chunks, stream
from examples.silero_vad.spans import find_spans
from pte_arenas.runtime import load_program

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from pte_arenas.runtime import Session

# Printed by examples/silero_vad/make_speech.sh: when each sentence sounds, in seconds.
SENTENCES = [(0.80, 2.62), (4.62, 6.57), (7.47, 9.19)]
SPAN_TOLERANCE = 0.1  # seconds; about three chunks


class Heard(NamedTuple):
    """The eager network after one pass over the recording."""

    vad: SileroVad
    probabilities: Tensor


@pytest.fixture(scope="module")
def chunks() -> Tensor:
    return split_chunks(read_recording(SPEECH))


@pytest.fixture(scope="module")
def official(chunks: Tensor) -> Tensor:
    model = load_official_vad()
    return stream(lambda chunk: model(chunk, SAMPLE_RATE), chunks)


@pytest.fixture(scope="module")
def eager(chunks: Tensor) -> Heard:
    vad = load_vad()
    return Heard(vad, stream(vad.detect, chunks))


@pytest.fixture(scope="module", params=["portable", "xnnpack"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "vad.pte"
    program = export_vad(load_vad(), xnnpack=request.param == "xnnpack")
    detect = next(
        plan for plan in program.executorch_program.execution_plan if plan.name == "detect"
    )
    delegates = {delegate.id for delegate in detect.delegates}
    assert delegates == ({"XnnpackBackend"} if request.param == "xnnpack" else set())
    program.save(str(path))
    return path


@pytest.fixture
def session(path: Path) -> Session:
    return load_program(path).session()


def listen(session: Session, chunks: Tensor) -> Tensor:
    detect = session.load_method("detect")
    return stream(lambda chunk: detect.execute((chunk,))[0], chunks)


def largest_difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_recording_is_ten_seconds(chunks: Tensor) -> None:
    assert chunks.shape == (313, 1, CHUNK_SAMPLES)


def test_eager_network_is_the_torchscript_model(eager: Heard, official: Tensor) -> None:
    assert largest_difference(eager.probabilities, official) <= 1e-5


def test_eager_reset_forgets_everything(eager: Heard, chunks: Tensor) -> None:
    vad = load_vad()
    stream(vad.detect, chunks[:40])
    vad.reset()
    assert torch.equal(stream(vad.detect, chunks[:40]), eager.probabilities[:40])


def test_sentences_are_found_and_noise_is_not(official: Tensor) -> None:
    spans = find_spans(official.tolist())
    assert len(spans) == len(SENTENCES)
    for span, sentence in zip(spans, SENTENCES, strict=True):
        assert tuple(span) == pytest.approx(sentence, abs=SPAN_TOLERANCE)


def test_program_hears_what_the_torchscript_model_hears(
    session: Session, chunks: Tensor, eager: Heard, official: Tensor
) -> None:
    probabilities = listen(session, chunks)
    assert largest_difference(probabilities, official) <= 1e-4
    assert largest_difference(probabilities, eager.probabilities) <= 1e-4
    assert find_spans(probabilities.tolist()) == find_spans(official.tolist())


def test_slots_hold_what_the_buffers_of_the_module_hold(
    session: Session, chunks: Tensor, eager: Heard
) -> None:
    listen(session, chunks)
    arena = session.arena("state")
    # Cell states reach 17, and eager float32 is itself 1.7e-4 away from eager float64 there.
    torch.testing.assert_close(arena["state"].tensor, eager.vad.state, rtol=1e-4, atol=1e-4)
    assert torch.equal(arena["context"].tensor, eager.vad.context)
    assert eager.vad.state.any()


@pytest.mark.parametrize("how", ["method", "session"])
def test_second_pass_after_reset_gives_the_same_bits(
    session: Session, chunks: Tensor, how: str
) -> None:
    first = listen(session, chunks)
    not_reset = listen(session, chunks)
    if how == "method":
        session.execute("reset", ())
    else:
        session.reset()
    assert torch.equal(listen(session, chunks), first)
    assert not torch.equal(not_reset, first)


def test_reset_acts_on_the_state_that_detect_left(session: Session, chunks: Tensor) -> None:
    listen(session, chunks[:60])
    arena = session.arena("state")
    assert arena["state"].tensor.any()
    assert arena["context"].tensor.any()
    session.execute("reset", ())
    assert not arena["state"].tensor.any()
    assert not arena["context"].tensor.any()


def test_file_declares_one_arena_with_both_buffers(path: Path) -> None:
    layout = pa.read_layout(path)
    (arena,) = layout.arenas
    assert (arena.name, arena.lifetime) == ("state", "state")
    assert {slot.fqn: slot.sizes for slot in arena.slots} == {
        "state": (2, 1, 128),
        "context": (1, 64),
    }
    assert {method.name: [b.arena for b in method.bindings] for method in layout.methods} == {
        "detect": [0],
        "reset": [0],
    }


def test_demo_prints_spans_and_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], official: Tensor
) -> None:
    assert demo.main(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "vad.pte").exists()
    assert all(f"  {span}\n" in printed for span in find_spans(official.tolist()))
    assert "the same bits" in printed


def test_demo_fails_where_the_program_disagrees(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_official_vad()
    monkeypatch.setattr(
        demo, "load_official_vad", lambda: lambda chunk, rate: model(chunk, rate) + 2e-4
    )
    monkeypatch.setattr(demo, "_write_program", lambda _folder, xnnpack: path)
    assert demo.main([]) == 1
    assert capsys.readouterr().err.endswith(
        "error: expected the same bits from both passes and at most 1e-04 from the model\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "expected a PCM WAV file but found none (EOFError)", id="empty"),
        pytest.param(None, "no such file or directory", id="missing"),
    ],
)
def test_demo_refuses_what_is_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    path = tmp_path / "a.wav"
    if content is not None:
        path.write_bytes(content)
    assert demo.main(["--wav", str(path), "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {path}: {message}\n"
