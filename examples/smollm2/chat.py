"""A conversation: everything it knows is in the arena of its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from examples.smollm2.tokenizer import ChatTokenizer
    from pte_arenas.runtime import Program, Session

CUT = "\ufffd"
"""What a tokenizer makes of a character some bytes of which are missing."""


class FullError(ValueError):
    """The KV cache has no room for all tokens."""


class Reader:
    """Reads tokens and says what follows them; the session holds what was read.

    Attributes:
        session: Its arena `kv_cache` is all the state there is.
        context: Positions that it has.
    """

    def __init__(self, program: Program, session: Session | None = None) -> None:
        """Takes a session of the program, or makes one that has read nothing."""
        self._program = program
        self.session = session or program.session()
        self.context = self._constant("get_max_context_len")
        self._room = self.context - 1  # see `program.entry_points`
        self._longest = self._constant("get_max_seq_len")

    @property
    def filled(self) -> int:
        """How many tokens were read."""
        return int(self.session.arena("kv_cache")["filled"].tensor)

    @property
    def tokens(self) -> list[int]:
        """The tokens that were read."""
        tokens: list[int] = self.session.arena("kv_cache")["tokens"].tensor.tolist()
        return tokens[: self.filled]

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Reads tokens and returns the logits of what follows them, `(1, vocabulary)`.

        Raises:
            FullError: There is no room for them; none was read.
            ValueError: There are none; or one where none was read before, which `decode` does not
                take.
        """
        filled = self.filled
        if not tokens or filled + len(tokens) < 2:
            raise ValueError(
                f"expected at least {2 - min(filled, 1)} tokens but found {len(tokens)}"
            )
        if filled + len(tokens) > self._room:
            raise FullError(
                f"expected at most {self._room:,} tokens but found {filled + len(tokens):,}"
            )
        while True:
            piece, tokens = tokens[: self._longest], tokens[self._longest :]
            filled += len(piece)
            method = "decode" if len(piece) == 1 else "prefill"
            inputs = (torch.tensor(piece), torch.arange(filled))
            logits: Tensor
            (logits,) = self.session.execute(method, inputs)
            if not tokens:
                return logits

    def continue_greedily(self, logits: Tensor, end: int | None = None) -> Iterator[int]:
        """Yields the likeliest token, reads it, and so on, until `end` or there is no room."""
        while True:
            token = int(logits.argmax())
            if token == end:
                return
            yield token
            if self.filled == self._room:
                return
            logits = self.read([token])

    def fork(self) -> Reader:
        """Returns another reader that has read the same; neither sees what the other reads."""
        return Reader(self._program, self.session.fork(copy_on_write=True))

    def _constant(self, method: str) -> int:
        (value,) = self.session.execute(method)
        return int(value)


class Conversation:
    """Questions and answers after a system prompt.

    Attributes:
        reader: Has read all of it.
    """

    def __init__(self, reader: Reader, tokenizer: ChatTokenizer) -> None:
        """Goes on from what the reader has read."""
        self.reader = reader
        self._tokenizer = tokenizer

    def ask(self, question: str) -> Iterator[str]:
        """Yields the answer piece by piece.

        Raises:
            FullError: There is no room for the question.
        """
        reader, tokenizer = self.reader, self._tokenizer
        logits = reader.read(tokenizer.question(question, after=reader.tokens))
        answer: list[int] = []
        shown = ""
        for token in reader.continue_greedily(logits, tokenizer.end):
            answer.append(token)
            text = tokenizer.decode(answer)
            if not text.endswith(CUT):
                yield text[len(shown) :]
                shown = text

    def fork(self) -> Conversation:
        """Returns a conversation that goes on from here, apart from this one."""
        return Conversation(self.reader.fork(), self._tokenizer)

    def save(self, path: Path) -> None:
        """Writes the conversation to a file."""
        self.reader.session.save(path)

    def load(self, path: Path) -> None:
        """Goes on with the conversation of a file."""
        self.reader.session.load(path)


def begin(reader: Reader, tokenizer: ChatTokenizer, system: str) -> Conversation:
    """Reads the system prompt with a reader that has read nothing."""
    reader.read(tokenizer.system(system))
    return Conversation(reader, tokenizer)
