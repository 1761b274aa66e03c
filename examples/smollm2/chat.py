"""A conversation: everything it knows is in the arena of its session."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from examples.smollm2.tokenizer import ChatTokenizer
    from pte_arenas.runtime import Program, Session

Choose = Callable[["Tensor"], int]
"""Chooses a token by the logits of all, `(1, vocabulary)`."""

CUT = "\ufffd"
"""What a tokenizer makes of a character some bytes of which are missing."""


def likeliest(logits: Tensor) -> int:
    """Chooses the token with the highest logit."""
    return int(logits.argmax())


class Sampler:
    """Chooses among the likeliest tokens, as the model's authors advise.

    Attributes:
        temperature: What the logits are divided by; more is more random.
        share: Sum of the probabilities of the tokens that are chosen from, at most 1.
    """

    def __init__(self, temperature: float = 0.2, share: float = 0.9, seed: int = 0) -> None:
        self.temperature = temperature
        self.share = share
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits: Tensor) -> int:
        """Chooses a token."""
        below = logits[0] - logits.max()  # so that no quotient is too large
        chances, tokens = torch.softmax(below / self.temperature, -1).sort(descending=True)
        chances[chances.cumsum(-1) - chances > self.share] = 0  # never the first
        return int(tokens[torch.multinomial(chances, 1, generator=self._generator)])


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
        self._vocabulary = self._constant("get_vocab_size")

    @property
    def full(self) -> bool:
        """Whether there is no room for another token."""
        return self.filled >= self._room

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

        All or, where it is interrupted, none of them are read.

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
        try:
            return self._read_pieces(filled, tokens)
        except BaseException:
            self.session.arena("kv_cache")["filled"].tensor.fill_(filled)
            raise

    def _read_pieces(self, filled: int, tokens: Sequence[int]) -> Tensor:
        while True:
            piece, tokens = tokens[: self._longest], tokens[self._longest :]
            filled += len(piece)
            method = "decode" if len(piece) == 1 else "prefill"
            inputs = (torch.tensor(piece), torch.arange(filled))
            logits: Tensor
            (logits,) = self.session.execute(method, inputs)
            if not tokens:
                return logits

    def continue_with(
        self, choose: Choose, logits: Tensor, end: int | None = None, most: int | None = None
    ) -> Iterator[int]:
        """Yields the chosen token, reads it, and so on, until `end`, `most` or there is no room."""
        for _ in count() if most is None else range(most):
            token = choose(logits)
            if token == end:
                return
            yield token
            if self.full:
                return
            logits = self.read([token])

    def fork(self) -> Reader:
        """Returns another reader that has read the same; neither sees what the other reads."""
        return Reader(self._program, self.session.fork(copy_on_write=True))

    def load(self, path: Path) -> None:
        """Goes on with what the session of a file has read.

        Raises:
            OSError: The file cannot be read.
            StateError: It holds no state of this program.
            ValueError: What it says was read cannot have been.
        """
        before = self.session.snapshot()
        self.session.load(path)
        filled, tokens = self.filled, self.tokens
        if not (0 <= filled <= self._room and all(0 <= t < self._vocabulary for t in tokens)):
            self.session.restore(before)
            raise ValueError(
                f"{path}: expected at most {self._room:,} tokens, all below {self._vocabulary:,}, "
                f"but found others; the file is damaged"
            )

    def _constant(self, method: str) -> int:
        (value,) = self.session.execute(method)
        return int(value)


class Conversation:
    """Questions and answers after a system prompt.

    Attributes:
        reader: Has read all of it.
        ended: Whether the last answer came to its end; it has not when it got too long.
    """

    def __init__(
        self, reader: Reader, tokenizer: ChatTokenizer, choose: Choose = likeliest
    ) -> None:
        """Goes on from what the reader has read."""
        self.reader = reader
        self.ended = True
        self._tokenizer = tokenizer
        self._choose = choose

    def ask(self, question: str, most: int | None = None) -> Iterator[str]:
        """Yields the answer piece by piece.

        Args:
            question: What to answer.
            most: How many tokens an answer may have, if not all there is room for.

        Raises:
            FullError: There is no room for the question.
        """
        reader, tokenizer = self.reader, self._tokenizer
        logits = reader.read(tokenizer.question(question, after=reader.tokens))
        answer: list[int] = []
        shown = ""
        self.ended = False

        def choose(logits: Tensor) -> int:
            token = self._choose(logits)
            self.ended = token == tokenizer.end
            return token

        for token in reader.continue_with(choose, logits, tokenizer.end, most):
            answer.append(token)
            text = tokenizer.decode(answer)
            if not text.endswith(CUT):
                yield text[len(shown) :]
                shown = text

    def fork(self) -> Conversation:
        """Returns a conversation that goes on from here, apart from this one."""
        return Conversation(self.reader.fork(), self._tokenizer, self._choose)

    def save(self, path: Path) -> None:
        """Writes the conversation to a file."""
        self.reader.session.save(path)

    def load(self, path: Path) -> None:
        """Goes on with the conversation of a file; see `Reader.load`."""
        self.reader.load(path)


def begin(
    reader: Reader, tokenizer: ChatTokenizer, system: str, choose: Choose = likeliest
) -> Conversation:
    """Reads the system prompt with a reader that has read nothing."""
    reader.read(tokenizer.system(system))
    return Conversation(reader, tokenizer, choose)
