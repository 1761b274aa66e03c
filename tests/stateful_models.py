"""Small modules with state: each is a kind of thing that stock sharing or lowering gets wrong."""

from __future__ import annotations

import types

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Counter(nn.Module):
    """State that starts at 5."""

    def __init__(self, start: float = 5.0) -> None:
        super().__init__()
        self.register_buffer("state", torch.full((2, 2), start))

    def forward(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return self.state * 2

    def get(self) -> Tensor:
        return self.state.clone()

    def reset(self) -> None:
        self.state.fill_(5.0)


class TwoConstants(nn.Module):
    """F19: no arguments and two scalar constants."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(3))

    def get(self) -> Tensor:
        return self.a * 2 + 1

    def softly(self) -> Tensor:
        return F.gelu(self.a) * 3 - 7 + (self.a - 2).abs()

    def add(self, x: Tensor) -> None:
        self.a.add_(x)


class DelayLine(nn.Module):
    """F20: a buffer takes over another buffer's old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("prev", torch.zeros(1))
        self.register_buffer("prev2", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.prev2
        self.prev2.copy_(self.prev)
        self.prev.copy_(x)
        return y

    def swap(self) -> None:
        kept = self.prev.clone()
        self.prev.copy_(self.prev2)
        self.prev2.copy_(kept)

    def reshape_swap(self) -> None:
        kept = self.prev.clone().view(1, 1)
        self.prev.copy_(self.prev2.view(1, 1).view(1))
        self.prev2.copy_(kept.view(1))

    def old(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.prev.clone()
        view_before = self.prev2.clone().view(1, 1)
        self.prev.add_(x)
        self.prev2.mul_(2.0)
        return before, view_before


class SameValue(nn.Module):
    """F21: two buffers get the same new value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", torch.zeros(2))
        self.register_buffer("c", torch.ones(2))

    def added(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        self.c.copy_(self.a)
        return self.c * 1

    def input_twice(self, x: Tensor) -> None:
        self.a.copy_(x)
        self.b.copy_(x)

    def returned(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        self.b.copy_(self.a)
        return self.a

    def get(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.a.clone(), self.b.clone(), self.c.clone()


class ReturnsState(nn.Module):
    """F22: the new value is also an output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        return self.a.clone()

    def itself(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        return self.a


class NamedLikeInput(nn.Module):
    """F24: buffers named like inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.zeros(2))
        self.register_buffer("y", torch.zeros(2))
        self.register_buffer("pair_0", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.x.add_(x)
        return self.x * 1

    def keyword(self, *, y: Tensor) -> Tensor:
        self.y.add_(y)
        self.x.add_(self.y)
        return self.y * 1

    def nested(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        self.pair_0.add_(pair[0] * pair[1])
        return self.pair_0 * 1

    def branch(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        self.y.add_(y)
        self.x.mul_(2.0).add_(x)
        return self.x + self.y


class BroadcastWrites(nn.Module):
    """F25: whole-buffer writes that broadcast or cast, read in the same call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2, 2))
        self.register_buffer("n", torch.zeros(2, 2, dtype=torch.int64))

    def broadcast(self, x: Tensor) -> Tensor:
        self.a.copy_(x)
        return self.a * 1

    def cast(self, x: Tensor) -> Tensor:
        self.n.copy_(x * 1.5)
        return self.n * 1

    def fill(self, x: Tensor) -> Tensor:
        self.a.fill_(x.sum())
        return self.a * 1

    def assign(self, x: Tensor) -> Tensor:
        self.a[:] = x.sum()
        return self.a * 1

    def assign_row(self, x: Tensor) -> Tensor:
        self.n[1] = x
        self.a[:, 0] = 3
        return self.n + self.a

    def fill_int(self, x: Tensor) -> Tensor:
        self.n.fill_(x.max())
        return self.n * 2


class TwoInputs(nn.Module):
    """F30: example inputs that are one tensor, or the buffer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.a.add_(x - 2 * y)
        return self.a * 1


class Strided(nn.Module):
    """F35: channels-last and transposed state."""

    def __init__(self) -> None:
        super().__init__()
        image = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)
        self.register_buffer("image", image)
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("part", torch.arange(10.0)[::2])

    def forward(self, x: Tensor) -> Tensor:
        self.image.add_(x)
        return self.image * 2

    def turn(self, x: Tensor) -> Tensor:
        self.turned.mul_(x)
        return self.turned @ self.turned.t()

    def step(self) -> Tensor:
        self.part.add_(1.0)
        return self.part * 1


class Hidden(nn.Module):
    """F36: state where export cannot see it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.n = 0
        self.plain = torch.zeros(2)
        self.history: list[Tensor] = []
        self.note = types.SimpleNamespace(count=0)
        self.seen: set[int] = set()
        self.inner: nn.Module = nn.Identity()

    total = 0

    def inside_object(self, x: Tensor) -> Tensor:
        self.note.count += 1
        return x * self.note.count

    def into_set(self, x: Tensor) -> Tensor:
        self.seen.add(len(self.seen))
        return x * len(self.seen)

    def class_level(self, x: Tensor) -> Tensor:
        Hidden.total += 1
        return x * Hidden.total

    def mode(self, x: Tensor) -> Tensor:
        self.training = False
        return x * 1

    def submodule(self, x: Tensor) -> Tensor:
        self.inner = nn.ReLU()
        return self.inner(x)

    def count(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n

    def plain_tensor(self, x: Tensor) -> Tensor:
        self.plain.add_(x)
        return self.plain * 1

    def plain_assign(self, x: Tensor) -> Tensor:
        self.plain = self.plain + x
        return self.plain * 1

    def late(self, x: Tensor) -> Tensor:
        self.register_buffer("late_buffer", x * 1)
        return self.late_buffer * 2

    def append(self, x: Tensor) -> Tensor:
        self.history.append(x)
        return x * len(self.history)


class Tied(nn.Module):
    """F34: one tensor under two names, a view of another buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(6.0))
        self.register_buffer("b", self.a)
        self.register_buffer("middle", self.a[1:5].view(2, 2))
        self.register_buffer("every_other", self.a[::2])

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        return self.b * 2

    def window(self, x: Tensor) -> Tensor:
        self.middle.mul_(x)
        self.every_other.add_(100.0)
        return self.a + self.b

    def get(self) -> tuple[Tensor, Tensor]:
        return self.middle.clone(), self.every_other.clone()


class Shared(nn.Module):
    """A submodule with state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.tensor([1.0, 2.0]))
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        self.state.mul_(0.5).add_(x)
        return self.state * self.scale


class Forwarding(nn.Module):
    """One of two root modules around a shared submodule; a method that calls `self.forward`."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.core = shared
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.core(x))

    def twice(self, x: Tensor) -> Tensor:
        return self.forward(self.forward(x))


class Resetting(nn.Module):
    """The other root module; it has no `forward`."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"shared": shared})

    def reset(self) -> None:
        self.inner["shared"].state.zero_()

    def peek(self) -> Tensor:
        return self.inner["shared"].state * 1
