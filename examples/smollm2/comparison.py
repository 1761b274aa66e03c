"""The exported model beside eager PyTorch: the same tokens from both."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from examples.smollm2.chat import FullError, Reader, likeliest
from examples.smollm2.model import load_smollm2
from examples.smollm2.tokenizer import ChatTokenizer
from examples.smollm2.weights import open_weights
from pte_arenas.runtime import load_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from examples.smollm2.model import SmolLM2

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):\n",
)


class Comparison(NamedTuple):
    """What follows a prompt, as the program and as eager PyTorch have it."""

    prompt: str
    program: str
    eager: str
    same: bool


def compare_with_eager(path: Path, count: int) -> Iterator[Comparison]:
    """Continues every prompt greedily by `count` tokens, the model not being quantised.

    Raises:
        FullError: There is no room for so many.
    """
    tokenizer = ChatTokenizer(open_weights().metadata)
    program = load_program(path)
    context = Reader(program).context
    prompts = {prompt: tokenizer.encode(prompt) for prompt in PROMPTS}
    room = context - max(map(len, prompts.values()))  # the last token is not read any more
    if count > room:
        raise FullError(
            f"expected at most {room:,} more tokens in a context of {context:,} but found {count:,}"
        )
    model = load_smollm2(context)
    for prompt, tokens in prompts.items():
        reader = Reader(program)
        found = list(islice(reader.continue_with(likeliest, reader.read(tokens)), count))
        expected = continue_eagerly(model, tokens, count)
        ours, eager = (tokenizer.decode(one) for one in (found, expected))
        yield Comparison(prompt, ours, eager, found == expected)


@torch.no_grad()
def continue_eagerly(model: SmolLM2, tokens: Sequence[int], count: int) -> list[int]:
    """The likeliest tokens that follow some, by the module itself."""
    logits = model.prefill(torch.tensor(tokens), torch.arange(len(tokens)))
    found = [int(logits.argmax())]
    while len(found) < count:
        positions = torch.arange(len(tokens) + len(found))
        logits = model.decode(torch.tensor(found[-1:]), positions)
        found.append(int(logits.argmax()))
    return found
