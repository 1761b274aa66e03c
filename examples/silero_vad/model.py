"""The trained Silero VAD network as a plain module: two buffers, two methods.

The weights come out of the TorchScript model of the PyPI package `silero-vad`, which is read
without importing the package, because its import needs torchaudio. The layers were composed from
the names and shapes of the weights and from that model's graph. (The package also holds
`silero_vad_16k.safetensors`; in 6.2.3 those are other weights, which give other numbers.)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from examples.packages import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_RATE = 16_000
"""Samples per second."""

CHUNK_SAMPLES = 512
"""New samples in every call, 32 ms."""

CONTEXT_SAMPLES = 64
"""Samples of the previous chunk that the network sees again before the new ones, 4 ms."""

OFFICIAL_LAYERS = {
    "stft_conv.weight": "stft.forward_basis_buffer",
    "conv1": "encoder.0.reparam_conv",
    "conv2": "encoder.1.reparam_conv",
    "conv3": "encoder.2.reparam_conv",
    "conv4": "encoder.3.reparam_conv",
    "lstm_cell": "decoder.rnn",
    "final_conv": "decoder.decoder.2",
}
"""Our layers, and where the TorchScript model keeps the same weights."""

HIDDEN = 128
FILTER_SAMPLES = 256
HOP_SAMPLES = 128
FREQUENCIES = FILTER_SAMPLES // 2 + 1


class SileroVad(nn.Module):
    """Tells whether 32 ms of sound hold speech, given what it has heard before.

    Attributes:
        state: Hidden and cell state of the LSTM, `(2, 1, 128)`, zeros at the start.
        context: The last samples of the previous chunk, `(1, 64)`, zeros at the start.
    """

    state: Tensor
    context: Tensor

    def __init__(self) -> None:
        """Makes the layers with random weights; `load_vad` gives the trained ones."""
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 1, HIDDEN), persistent=False)
        self.register_buffer("context", torch.zeros(1, CONTEXT_SAMPLES), persistent=False)
        # A short-time Fourier transform as a convolution: cosines in the first half of the
        # output channels, sines in the second, both under the analysis window.
        self.stft_conv = nn.Conv1d(
            1, 2 * FREQUENCIES, FILTER_SAMPLES, stride=HOP_SAMPLES, bias=False
        )
        self.conv1 = nn.Conv1d(FREQUENCIES, 128, 3, stride=1, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, HIDDEN, 3, stride=1, padding=1)
        self.lstm_cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.final_conv = nn.Conv1d(HIDDEN, 1, 1)

    def detect(self, chunk: Tensor) -> Tensor:
        """Returns the probability of speech in `chunk`, `(1, 1)`, and remembers the chunk.

        Args:
            chunk: The next 512 samples, `(1, 512)`, float32 in [-1, 1].
        """
        samples = torch.cat([self.context, chunk], dim=1)
        features = self._encode(self._magnitudes(samples))
        hidden, cell = self.lstm_cell(features, (self.state[0], self.state[1]))
        self.state.copy_(torch.stack([hidden, cell]))
        self.context.copy_(samples[:, -CONTEXT_SAMPLES:])
        return torch.sigmoid(self.final_conv(torch.relu(hidden).unsqueeze(-1))).squeeze(-1)

    def reset(self) -> None:
        """Forgets everything heard so far."""
        self.state.zero_()
        self.context.zero_()

    def _magnitudes(self, samples: Tensor) -> Tensor:
        """Four spectra of `samples`, `(1, 129, 4)`."""
        # The padding reflects the end of the chunk, where the next samples are not known yet.
        padded = nn.functional.pad(samples, (0, CONTEXT_SAMPLES), mode="reflect")
        spectrum = self.stft_conv(padded.unsqueeze(1))
        real, imaginary = spectrum[:, :FREQUENCIES], spectrum[:, FREQUENCIES:]
        return torch.sqrt(real * real + imaginary * imaginary)

    def _encode(self, magnitudes: Tensor) -> Tensor:
        """Features of the whole chunk, `(1, 128)`."""
        features = magnitudes
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            features = torch.relu(convolution(features))
        return features.squeeze(-1)


def load_vad() -> SileroVad:
    """Returns the network with its trained weights, ready to run or to export."""
    official = _load_script().state_dict()
    vad = SileroVad()
    vad.load_state_dict({name: official[_official_name(name)] for name in vad.state_dict()})
    return vad.eval().requires_grad_(False)


def load_official_vad() -> Callable[[Tensor, int], Tensor]:
    """Returns the TorchScript model of the `silero-vad` package, the reference of the demo.

    It takes a chunk and the sample rate, returns the probability of speech in the chunk, `(1, 1)`,
    and keeps what it has heard in attributes of its own.
    """
    return cast("Callable[[Tensor, int], Tensor]", _load_script())


def _official_name(name: str) -> str:
    layer, _, parameter = name.partition(".")
    official = OFFICIAL_LAYERS.get(name) or f"{OFFICIAL_LAYERS[layer]}.{parameter}"
    return f"_model.{official}"  # `_model_8k` is its sibling for 8 kHz


def _load_script() -> torch.jit.ScriptModule:
    path = folder_of("silero_vad", "silero-vad") / "data" / "silero_vad.jit"
    with warnings.catch_warnings():
        # PyTorch deprecates TorchScript; the package has its reference in no other form of PyTorch.
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", DeprecationWarning)
        script: torch.jit.ScriptModule = torch.jit.load(path, "cpu")  # type: ignore[no-untyped-call]
    return script.eval()
