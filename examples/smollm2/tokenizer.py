"""Text and tokens: the byte-pair encoding in the GGUF file, and the template of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the model was tuned with, from its `tokenizer.chat_template`."""

_CONTROL = 3  # llama.cpp: LLAMA_TOKEN_TYPE_CONTROL


class ChatTokenizer:
    """Encodes messages as the model was tuned with them.

    Attributes:
        end: The token that ends a message.
    """

    end: int

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Builds the encoding from the metadata of a GGUF file.

        Raises:
            ValueError: The file has an encoding of another kind.
        """
        found = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]
        if found != ("gpt2", "smollm"):
            raise ValueError(f"tokenizer: expected the kind ('gpt2', 'smollm') but found {found}")
        tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
        merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        self._tokenizer = Tokenizer(BPE(vocabulary, merges))
        self._tokenizer.add_special_tokens(
            [
                AddedToken(token, normalized=False, special=True)
                for token, kind in zip(tokens, kinds, strict=True)
                if kind == _CONTROL
            ]
        )
        # What llama.cpp calls `smollm`: digits one by one, then GPT-2's pattern over bytes.
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        self.end = int(metadata["tokenizer.ggml.eos_token_id"])

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, in which `<|im_start|>` and the like are control tokens.

        What is no text, such as bytes of another encoding that a terminal passed on, becomes `?`.
        """
        known = text.encode(errors="replace").decode()
        tokens: list[int] = self._tokenizer.encode(known).ids
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens without control tokens; a cut character is U+FFFD."""
        text: str = self._tokenizer.decode(list(tokens))
        return text

    def system(self, text: str = SYSTEM) -> list[int]:
        """Tokens that begin a conversation."""
        return self.encode(f"<|im_start|>system\n{text}<|im_end|>\n")

    def question(self, text: str, after: Sequence[int]) -> list[int]:
        """Tokens of what the user says and of the beginning of an answer.

        Args:
            text: What the user says; control tokens in it are text.
            after: Tokens of all that was said before; where they end in the middle of a message,
                it ends there.
        """
        ended = list(after[-2:]) == self.encode("<|im_end|>\n")
        before = self.encode("" if ended else "<|im_end|>\n") + self.encode("<|im_start|>user\n")
        return [*before, *self._plain(text), *self.encode("<|im_end|>\n<|im_start|>assistant\n")]

    def _plain(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        try:
            return self.encode(text)
        finally:
            self._tokenizer.encode_special_tokens = False
