"""SmolLM2 as a plain module: a Llama whose keys and values are buffers that its methods share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.smollm2.weights import GgufFile, open_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PREFILL = 512
"""Most tokens of one call of `prefill`."""


@dataclass(frozen=True)
class Config:
    """Sizes of the network.

    Attributes:
        context: Positions that the KV cache has room for.
        kv_heads: Heads of keys and values, each of which `heads / kv_heads` queries read.
        base: Of the angles of RoPE.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    base: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Numbers in the query of one head."""
        return self.width // self.heads

    @classmethod
    def read(cls, metadata: Mapping[str, int | float]) -> Config:
        """Reads the sizes from the metadata of a GGUF file."""

        def number(key: str) -> int:
            return int(metadata[f"llama.{key}"])

        return cls(
            layers=number("block_count"),
            width=number("embedding_length"),
            hidden=number("feed_forward_length"),
            heads=number("attention.head_count"),
            kv_heads=number("attention.head_count_kv"),
            vocabulary=number("vocab_size"),
            context=number("context_length"),
            base=metadata["llama.rope.freq_base"],
            epsilon=metadata["llama.attention.layer_norm_rms_epsilon"],
        )


class RMSNorm(nn.Module):
    """Divides by the root of the mean square, which a linear layer computes for XNNPACK to take.

    Its `mean.dim` is for pictures.
    """

    average: Tensor
    epsilon: Tensor

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("average", torch.full((1, width), 1 / width), persistent=False)
        self.register_buffer("epsilon", torch.full((1,), epsilon), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Norms the last dimension."""
        return x * F.linear(x * x, self.average, self.epsilon).rsqrt() * self.weight


class Attention(nn.Module):
    """Grouped-query attention over every position so far.

    Attributes:
        keys: `(kv_heads, context, head)`, zeros at the start.
        values: The same of the values.
        by_head: Whether a single token reads the cache head by head: what is filled of one head is
            a run of bytes, which is read where it is, as a part of the arena.
    """

    keys: Tensor
    values: Tensor
    by_head = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        kv_width = config.kv_heads * config.head
        for name in ("keys", "values"):
            cache = torch.zeros(config.kv_heads, config.context, config.head)
            self.register_buffer(name, cache, persistent=False)
        self.to_query = nn.Linear(config.width, config.width, bias=False)
        self.to_keys = nn.Linear(config.width, kv_width, bias=False)
        self.to_values = nn.Linear(config.width, kv_width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """Remembers keys and values of `x`, `(n, width)`, and attends to all until then."""
        groups, head = self.config.kv_heads, self.config.head
        query = place.rotate(self.to_query(x).view(-1, self.config.heads, head)) * head**-0.5
        keys = place.rotate(self.to_keys(x).view(-1, groups, head))
        values = self.to_values(x).view(-1, groups, head)
        self.keys.index_copy_(1, place.positions, keys.transpose(0, 1))
        self.values.index_copy_(1, place.positions, values.transpose(0, 1))
        # Queries that read the same keys are columns of one matrix.
        columns = query.view(-1, groups, self.config.heads // groups, head).permute(1, 3, 2, 0)
        columns = columns.contiguous().view(groups, head, -1)
        caches = self.keys, self.values
        if self.by_head and place.mask is None:
            heads = [[cache[g][: place.filled][None] for cache in caches] for g in range(groups)]
            each = [_attend(columns[g : g + 1], *heads[g]) for g in range(groups)]
            read = torch.cat(each)
        else:
            keys, values = (cache[:, : place.filled] for cache in caches)
            read = _attend(columns, keys, values, place.mask)
        by_token = read.view(groups, self.config.heads // groups, -1, head).permute(2, 0, 1, 3)
        y: Tensor = self.output(by_token.contiguous().view(-1, self.config.width))
        return y


def _attend(columns: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Reads values, `(groups, filled, head)`, by queries, `(groups, head, queries)`."""
    scores = torch.bmm(keys, columns).transpose(1, 2)
    if mask is not None:
        scores = scores + mask
    return torch.bmm(scores.softmax(-1), values)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns what `x`, `(n, width)`, becomes."""
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.epsilon)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.width, config.epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """Returns what `x`, `(n, width)`, becomes at its place."""
        x = x + self.attention(self.attention_norm(x), place)
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class SmolLM2(nn.Module):
    """The network: `prefill` reads a prompt, `decode` a token, `reset` forgets both.

    The first two take every position so far, 0, 1, 2, ..., those of their tokens last. How many
    there are is how much of the cache attention reads. As the length of an argument, and not as a
    number in a tensor, XNNPACK takes it for a size that may change.

    Attributes:
        tokens: Every token read, `(context,)`, so that the state tells what it is of.
        filled: How many there are, `(1,)`.
    """

    tokens: Tensor
    filled: Tensor
    turn: Tensor
    cosines: Tensor
    sines: Tensor

    def __init__(self, config: Config) -> None:
        """Makes the layers with random weights; `load_smollm2` gives the trained ones."""
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.epsilon)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        for name, length in (("tokens", config.context), ("filled", 1)):
            zeros = torch.zeros(length, dtype=torch.int64)
            self.register_buffer(name, zeros, persistent=False)
        # Turns each pair of neighbours by a right angle: (a, b) becomes (-b, a).
        turn = torch.eye(config.head // 2).kron(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        self.register_buffer("turn", turn, persistent=False)
        powers = torch.arange(0, config.head, 2).repeat_interleave(2) / -config.head
        angles = torch.arange(config.context)[:, None, None] * config.base**powers
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def prefill(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Reads several tokens and returns the logits of what follows the last, `(1, vocabulary)`.

        Args:
            tokens: `(n,)`, int64; n from 2 to 512.
            positions: `(filled,)`, int64: 0, 1, 2, ... until that of the last token.
        """
        count = tokens.shape[0]
        filled = positions.shape[0]
        own = positions.narrow(0, filled - count, count)
        queries = own.repeat(self.config.heads // self.config.kv_heads)
        hidden = positions[None] > queries[:, None]
        mask = torch.zeros(()).masked_fill(hidden, float("-inf"))
        return self._read(tokens, self._place(own, filled, mask))

    def decode(self, token: Tensor, positions: Tensor) -> Tensor:
        """Reads one token and returns the logits of what follows it, `(1, vocabulary)`.

        Args:
            token: `(1,)`, int64.
            positions: `(filled,)`, int64: 0, 1, 2, ... until that of the token; at least 2.
        """
        return self._read(token, self._place(positions[-1:], positions.shape[0]))

    def reset(self) -> None:
        """Makes the cache what it was at the start."""
        for layer in cast("list[Layer]", self.layers):
            layer.attention.keys.zero_()
            layer.attention.values.zero_()
        self.tokens.zero_()
        self.filled.zero_()

    def _place(self, own: Tensor, filled: int, mask: Tensor | None = None) -> Place:
        return Place(own, filled, self.cosines[own], self.sines[own], self.turn, mask)

    def _read(self, tokens: Tensor, place: Place) -> Tensor:
        self.tokens.index_copy_(0, place.positions, tokens)
        self.filled.copy_(place.positions[-1:] + 1)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, place)
        logits: Tensor = self.head(self.norm(x[-1:]))
        return logits


@dataclass(frozen=True)
class Place:
    """Where in the context some tokens are, as every layer needs it.

    Attributes:
        positions: Of the tokens, `(n,)`.
        filled: How many positions there are until behind the last of them.
        cosines: Of the angles of RoPE, `(n, 1, head)`, the same for both numbers of a pair.
        sines: The same.
        turn: Turns pairs by a right angle, `(head, head)`.
        mask: 0 where a query may look and -inf where not, `(heads / kv_heads * n, filled)`;
            None for one token, which may look everywhere.
    """

    positions: Tensor
    filled: int
    cosines: Tensor
    sines: Tensor
    turn: Tensor
    mask: Tensor | None

    def rotate(self, x: Tensor) -> Tensor:
        """Turns the pairs in `(n, heads, head)` by the angles of RoPE."""
        return x * self.cosines + F.linear(x, self.turn) * self.sines


_LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "attention.to_query": "attn_q",
    "attention.to_keys": "attn_k",
    "attention.to_values": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}
"""Parts of a layer, and what GGUF calls them."""


def load_smollm2(
    context: int, *, layers: int | None = None, vocabulary: int | None = None
) -> SmolLM2:
    """Returns the network with its trained weights, ready to run or to export.

    Args:
        context: Positions in the KV cache; trained for up to 8,192.
        layers: How many of the 30 layers, from the first. Fewer do not make sense of a text, but
            are quick to export.
        vocabulary: How many of the 49,152 tokens, from the first; for the same reason.
    """
    file = open_weights()
    config = replace(Config.read(file.metadata), context=context)
    tokens = vocabulary or config.vocabulary
    model = SmolLM2(replace(config, layers=layers or config.layers, vocabulary=tokens))
    for name, parameter in model.named_parameters():
        parameter.data = _trained(file, name)[: parameter.shape[0]]
    return model.eval().requires_grad_(False)


def _trained(file: GgufFile, name: str) -> Tensor:
    kind, _, rest = name.partition(".")
    if kind != "layers":
        return file.tensor({"embedding": "token_embd", "norm": "output_norm"}[kind] + ".weight")
    index, _, part = rest.removesuffix(".weight").partition(".")
    return file.tensor(f"blk.{index}.{_LAYER_NAMES[part]}.weight")
