"""Greedy decoding, whoever holds the state: eager PyTorch, a session, or the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from executorch.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from examples.encoder_decoder.model import Translator
    from pte_arenas.runtime import Session

    Call = Callable[[str, tuple[Tensor, ...]], Tensor]
    """Runs a method on its inputs and returns the logits."""


def translate(call: Call, source: Tensor, length: int, steps: int) -> Tensor:
    """Encodes a source and decodes so many tokens.

    Returns:
        The logits of each token, `(steps, vocabulary)`.
    """
    counted = torch.tensor([length])
    found = [call("reset_encode_prefill", (source, counted))]
    for position in range(1, steps):
        inputs = (found[-1].argmax(-1), torch.tensor([position]), counted)
        found.append(call("decode", inputs))
    return torch.cat(found)


def in_eager(model: Translator) -> Call:
    """The state in the buffers of the module."""

    @torch.no_grad()
    def call(method: str, inputs: tuple[Tensor, ...]) -> Tensor:
        logits: Tensor = getattr(model, method)(*inputs)
        return logits

    return call


class InSession:
    """The state in the arenas of a session.

    Attributes:
        moved: Bytes that went into and came out of the last call.
    """

    def __init__(self, session: Session) -> None:
        """Begins with the state that the session has."""
        self._session = session
        self.moved = 0

    def __call__(self, method: str, inputs: tuple[Tensor, ...]) -> Tensor:
        """Runs a method."""
        outputs: list[Tensor] = self._session.execute(method, inputs)
        self.moved = _nbytes(*inputs, *outputs)
        return outputs[0]


class Passed:
    """The state with the caller, who gives it to every call and takes it back, on stock.

    Attributes:
        moved: Bytes that went into and came out of the last call.
    """

    def __init__(
        self, program: bytes, state: Mapping[str, Tensor], changed: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Begins with a state; `changed` has what each method returns of it."""
        loaded = Runtime.get().load_program(program)
        self._methods: dict[str, Any] = {name: loaded.load_method(name) for name in changed}
        self._state = dict(state)
        self._changed = changed
        self.moved = 0

    def __call__(self, method: str, inputs: tuple[Tensor, ...]) -> Tensor:
        """Runs a method."""
        given = (*inputs, *self._state.values())
        *state, logits = outputs = self._methods[method].execute(given)
        self._state.update(zip(self._changed[method], state, strict=True))
        self.moved = _nbytes(*given, *outputs)
        found: Tensor = logits
        return found


def _nbytes(*values: Tensor) -> int:
    return sum(value.nbytes for value in values)
