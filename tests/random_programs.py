"""Random small modules with state, as source text, for comparison with eager."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch
from torch import nn

SIZES = (2, 3)

# A, B: float buffers of SIZES; N: an int64 buffer of SIZES; x: an input of SIZES; T: a new local.
STATEMENTS = (
    "self.A.add_(x)",
    "self.A.mul_(0.5)",
    "self.A.sub_(self.B)",
    "self.A.copy_(self.B)",
    "self.A.copy_(x)",
    "self.A.zero_()",
    "self.A.fill_(2.0)",
    "self.A.fill_(x.sum())",
    "self.A[0] = x[1]",
    "self.A[:, 1] = x[:, 0]",
    "self.A[:] = self.B",
    "self.A[:] = x.mean()",
    "self.A[1, 2] = self.B[0, 0]",
    "self.A.narrow(0, 1, 1).copy_(x[:1])",
    "self.A.narrow(1, 0, 2).add_(1.0)",
    "self.A[torch.tensor([1, 0])] = x",
    "self.A.index_copy_(0, torch.tensor([1]), x[:1])",
    "self.A.index_put_((torch.tensor([1, 0]),), x)",
    "self.A.scatter_(1, torch.tensor([[0, 2], [1, 0]]), x[:, :2])",
    "self.A[torch.tensor([1, 0])] = self.A.clone()",
    "self.A.scatter_(1, torch.tensor([[0, 2], [1, 0]]), self.A[:, 1:].clone())",
    "self.A[x > 0] = 1.5",
    "self.A[torch.tensor([1, 0]), torch.tensor([2, 0])] = x[:, 1]",
    "self.A.fill_(x.shape[0])",
    "self.A.view(-1)[2:4] = 7.0",
    "self.A = self.A + x",
    "self.A = self.B * 2",
    "self.A, self.B = self.B, self.A",
    "self.A = x.flip(0)",
    "T = self.A; self.A = self.A * 2",
    "self.A.copy_(self.A.flip(0))",
    "self.A.copy_(x.t().reshape(2, 3))",
    "self.A.addcmul_(x, self.B)",
    "self.A.clamp_(-3.0, 3.0)",
    "self.A.copy_(torch.where(x > 0, self.A, self.B))",
    "self.A.copy_(nn.functional.linear(x, self.weight))",
    "self.A.copy_(nn.functional.linear(x, self.A[:, :3].t() @ self.B))",
    "self.A.lerp_(x, 0.25)",
    "self.A.neg_()",
    "self.A.div_(2.0)",
    "self.A.masked_fill_(x > 1, 0.5)",
    "self.N.add_(1)",
    "self.N.copy_(x * 1.5)",
    "self.N[0] = 4",
    "self.A.copy_(self.N)",
    "self.A[0] = self.A[1]",
    "self.A[1] = self.B[0]",
    "self.A.add_(self.B[1] * 1)",
    "self.A.copy_(self.A[1:] + x)",
    "T = self.A.clone()",
    "T = self.A + x",
    "T = self.A.view(-1)[1:4] * 1",
    "T = self.A[0]",
    "T = self.A[1:] * x",
    "T = self.A[0] + self.B[1]",
    "T = self.A[1].unsqueeze(0) @ x.t()",
    "T = nn.functional.linear(x, self.A[:1])",
    "T = self.A.view(3, 2)",
    "T = self.A.t()",
    "T = self.A.sum(dim=1)",
    "T = self.A @ self.B.t()",
    "T = self.N * 2",
    "T = torch.softmax(self.A, dim=-1)",
    "T = nn.functional.linear(x, self.A)",
    "T = self.A.detach().clone().relu_()",
    "T = torch.cat([self.A, x])",
    "T = self.A.to(torch.float16).float()",
)
RESULTS = ("self.A", "self.A.clone()", "self.A * 1", "self.A + self.B", "self.N * 1", "x * 2")


@dataclasses.dataclass(frozen=True)
class RandomProgram:
    """A module's source, its methods (whether each takes an input) and calls.

    Attributes:
        source: Defines the class `Generated`.
        methods: By name, whether it takes `x`.
        calls: Method names with the seed of their input.
    """

    source: str
    methods: dict[str, bool]
    calls: tuple[tuple[str, int], ...]

    def make(self) -> nn.Module:
        """A fresh module."""
        scope: dict[str, Any] = {"torch": torch, "nn": nn}
        exec(self.source, scope)  # noqa: S102
        module: nn.Module = scope["Generated"]()
        return module

    def arguments(self, method: str, seed: int) -> tuple[torch.Tensor, ...]:
        """The arguments of one call."""
        if not self.methods[method]:
            return ()
        generator = torch.Generator().manual_seed(seed)
        return (torch.randint(-4, 5, SIZES, generator=generator) * 0.5,)


def generate(seed: int) -> RandomProgram:
    """Makes the program of a seed: 2 to 5 methods over 1 to 6 buffers."""
    rng = random.Random(seed)  # noqa: S311
    floats = [f"b{index}" for index in range(rng.randint(1, 5))]
    lines = [
        "class Generated(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        generator = torch.Generator().manual_seed(7)",
        "        weight = torch.randint(-2, 3, (3, 3), generator=generator) * 0.5",
        "        self.weight = nn.Parameter(weight)",
    ]
    for index, name in enumerate(floats):
        start = rng.choice(["torch.zeros(2, 3)", f"torch.full((2, 3), {index + 1}.0)"])
        lines.append(f"        self.register_buffer('{name}', {start})")
    lines.append("        self.register_buffer('n', torch.ones(2, 3, dtype=torch.int64))")
    methods: dict[str, bool] = {}
    (count,) = rng.choices(range(2, 6), weights=(6, 3, 2, 1))  # each takes a second to lower
    for index in range(count):
        name = f"m{index}"
        lines += _method(rng, name, floats)
        methods[name] = f"    def {name}(self, x):" in lines
    calls = tuple((rng.choice(list(methods)), rng.randrange(1000)) for _ in range(8))
    return RandomProgram("\n".join(lines) + "\n", methods, calls)


def _method(rng: random.Random, name: str, floats: list[str]) -> list[str]:
    body: list[str] = []
    locals_: list[str] = []
    for _ in range(rng.randint(1, 5)):
        statement = _fill(rng, rng.choice(STATEMENTS), floats)
        if statement.startswith("T ="):  # a new local
            local = f"t{len(locals_)}"
            statement = local + statement[1:]
            locals_.append(local)
        body.append(statement)
    results = [local for local in locals_ if rng.random() < 0.7]
    if rng.random() < 0.6:
        results.append(_fill(rng, rng.choice(RESULTS), floats))
    if results:
        body.append("return " + ", ".join(dict.fromkeys(results)))
    takes_x = any("x" in _words(line) for line in body)
    head = f"    def {name}(self, x):" if takes_x else f"    def {name}(self):"
    return [head, *("        " + line for line in body)]


def _fill(rng: random.Random, text: str, floats: list[str]) -> str:
    text = text.replace("self.A", f"self.{rng.choice(floats)}")
    text = text.replace("self.B", f"self.{rng.choice(floats)}")
    return text.replace("self.N", "self.n")


def _words(line: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in line).split())
