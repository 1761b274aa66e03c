"""A small transformer that encodes a source once and decodes a target token by token.

Its weights are random: what it says means nothing, the way its state goes is that of trained ones.
(No package on PyPI was found to ship a trained one in December 2026; `g2p-en` ships a recurrent
encoder and decoder, whose decoder attends to nothing.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

BEGIN = 0
"""The token that begins every target."""


@dataclass(frozen=True)
class Config:
    """Sizes of the network.

    Attributes:
        source: Tokens of a source; a shorter one is padded.
        target: Positions that the cache of the decoder has.
    """

    width: int = 256
    heads: int = 4
    layers: int = 2
    source: int = 256
    target: int = 128
    vocabulary: int = 512

    @property
    def head(self) -> int:
        """Numbers in the query of one head."""
        return self.width // self.heads


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Reads the positions of a mask, `(length,)`, head by head.

    Args:
        query: `(heads, queries, head)`.
        keys: `(heads, head, length)`.
        values: `(heads, length, head)`.
        mask: Which positions count.

    Returns:
        `(heads, queries, head)`.
    """
    scores = torch.bmm(query, keys) * query.shape[-1] ** -0.5
    weights = torch.where(mask, scores, -1e9).softmax(-1)
    return torch.bmm(weights, values)


class Memory(nn.Module):
    """Keys and values of one attention, head by head, keys transposed.

    Attributes:
        keys: `(heads, head, length)`.
        values: `(heads, length, head)`.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, config: Config, length: int) -> None:
        """Makes room for so many positions."""
        super().__init__()
        self.config = config
        self.register_buffer("keys", torch.zeros(config.heads, config.head, length))
        self.register_buffer("values", torch.zeros(config.heads, length, config.head))
        self.to_keys = nn.Linear(config.width, config.width)
        self.to_values = nn.Linear(config.width, config.width)

    def fill(self, x: Tensor) -> None:
        """Takes keys and values of all positions of `x`, `(length, width)`."""
        heads, head = self.config.heads, self.config.head
        self.keys.copy_(self.to_keys(x).view(-1, heads, head).permute(1, 2, 0))
        self.values.copy_(self.to_values(x).view(-1, heads, head).transpose(0, 1))

    def append(self, x: Tensor, position: Tensor) -> None:
        """Takes those of `x`, `(1, width)`, at a position."""
        heads, head = self.config.heads, self.config.head
        self.keys.index_copy_(2, position, self.to_keys(x).view(heads, head, 1))
        self.values.index_copy_(1, position, self.to_values(x).view(heads, 1, head))

    def attend(self, query: Tensor, mask: Tensor) -> Tensor:
        """Reads the positions of a mask, `(length,)`, for a query, `(1, width)`."""
        heads, head = self.config.heads, self.config.head
        read = attention(query.view(heads, 1, head), self.keys, self.values, mask)
        return read.view(1, self.config.width)


class EncoderLayer(nn.Module):
    """Attention to the source, then two linear layers."""

    def __init__(self, config: Config) -> None:
        """Makes the layer with random weights."""
        super().__init__()
        self.config = config
        width = config.width
        self.attention, self.feed_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.linear = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns what comes of `x`, `(length, width)`, of which a mask, `(length,)`, is read."""
        heads, head = self.config.heads, self.config.head
        normed = self.attention(x)
        query, keys, values = (
            part(normed).view(-1, heads, head).transpose(0, 1) for part in self.inputs
        )
        read = attention(query, keys.transpose(1, 2), values, mask).transpose(0, 1)
        x = x + self.output(read.reshape(-1, self.config.width))
        mixed: Tensor = x + self.linear(self.feed_forward(x))
        return mixed


class DecoderLayer(nn.Module):
    """Attention to the target so far and to the source, then two linear layers."""

    def __init__(self, config: Config) -> None:
        """Makes the layer with random weights."""
        super().__init__()
        self.config = config
        self.past, self.cross = Memory(config, config.target), Memory(config, config.source)
        width = config.width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.queries = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.linear = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor, position: Tensor, source_mask: Tensor) -> Tensor:
        """Returns what comes of `x`, `(1, width)`, at a position."""
        normed = self.norms[0](x)
        self.past.append(normed, position)
        so_far = torch.arange(self.config.target) <= position
        x = x + self.outputs[0](self.past.attend(self.queries[0](normed), so_far))
        query = self.queries[1](self.norms[1](x))
        x = x + self.outputs[1](self.cross.attend(query, source_mask))
        mixed: Tensor = x + self.linear(self.norms[2](x))
        return mixed


class Translator(nn.Module):
    """Encodes a source once, then decodes it token by token."""

    def __init__(self, config: Config) -> None:
        """Makes the network, with the same random weights every time."""
        super().__init__()
        torch.manual_seed(0)
        self.config = config
        width = config.width
        self.embedding = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Embedding(max(config.source, config.target), width)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.encoded = nn.LayerNorm(width)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, config.vocabulary))
        self.requires_grad_(requires_grad=False)

    def reset_encode_prefill(self, source: Tensor, length: Tensor) -> Tensor:
        """Forgets the last target, reads a source and begins a new target.

        Args:
            source: `(source,)`, int64.
            length: How many of its tokens count, `(1,)`, int64.

        Returns:
            Logits of the first token of the target, `(1, vocabulary)`.
        """
        x = self.embedding(source) + self.positions(torch.arange(self.config.source))
        mask = torch.arange(self.config.source) < length
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoded(x)
        for layer in cast("list[DecoderLayer]", self.layers):
            layer.past.keys.zero_()
            layer.past.values.zero_()
            layer.cross.fill(x)
        return self.decode(torch.full((1,), BEGIN), torch.zeros(1, dtype=torch.int64), length)

    def decode(self, token: Tensor, position: Tensor, length: Tensor) -> Tensor:
        """Reads a token of the target and returns the logits of the next, `(1, vocabulary)`.

        Args:
            token: `(1,)`, int64.
            position: Its position, `(1,)`, int64; `BEGIN` was at 0.
            length: How many tokens of the source count, `(1,)`, int64.
        """
        x = self.embedding(token) + self.positions(position)
        source_mask = torch.arange(self.config.source) < length
        for layer in self.layers:
            x = layer(x, position, source_mask)
        logits: Tensor = self.head(x)
        return logits
