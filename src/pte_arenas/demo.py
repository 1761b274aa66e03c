"""A small stateful model from export to execution, for `pte-arenas demo`."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower

from pte_arenas.declare import Arena, EntryPoint
from pte_arenas.emitter import to_executorch
from pte_arenas.exporter import export
from pte_arenas.layout import ProgramLayout
from pte_arenas.read import read_layout
from pte_arenas.runtime import load_program


class RunningMean(torch.nn.Module):
    """The mean of a stream so far: two methods over one state."""

    mean: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def push(self, sample: torch.Tensor) -> torch.Tensor:
        """Takes one more sample and returns the mean."""
        self.count.add_(1)
        self.mean.add_((sample - self.mean) / self.count)
        return self.mean.clone()

    def reset(self) -> None:
        """Forgets all samples."""
        self.mean.zero_()
        self.count.zero_()


@dataclass(frozen=True)
class Step:
    """One call of the demo: what went in, and what the program and PyTorch returned."""

    call: str
    program: float | None
    eager: float | None


def run_demo(path: Path) -> tuple[ProgramLayout, list[Step]]:
    """Exports the model to `path` and calls the program and the module side by side."""
    module = RunningMean()
    exported = export(
        {"push": EntryPoint(module.push, (torch.tensor(0.0),)), "reset": EntryPoint(module.reset)},
        arenas=[Arena("stream")],
    )
    edge = to_edge_transform_and_lower(exported.programs)
    to_executorch(edge, arenas=exported.arenas).save(path)

    session = load_program(path).session()
    eager = copy.deepcopy(module)
    steps = []
    for sample in (3.0, 5.0, 10.0, None, 8.0, 4.0):
        if sample is None:
            session.execute("reset", ())
            eager.reset()
            steps.append(Step("reset()", None, None))
            continue
        (mean,) = session.execute("push", (torch.tensor(sample),))
        steps.append(
            Step(f"push({sample:g})", float(mean), float(eager.push(torch.tensor(sample))))
        )
    return read_layout(path), steps
