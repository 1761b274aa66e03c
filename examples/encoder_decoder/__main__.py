"""`python -m examples.encoder_decoder`: the state in arenas, beside eager and beside passing it."""

from __future__ import annotations

import logging
import sys
import warnings

import torch
from rich.console import Console
from rich.table import Table

import pte_arenas as pa
from examples.encoder_decoder.model import Config, Translator
from pte_arenas.render import draw_layout
from pte_arenas.runtime import load_program

STEPS = 32
TOLERANCE = 1e-4
"""Largest difference from eager PyTorch that still counts as agreeing."""


def main(config: Config | None = None) -> int:
    """Runs the demo; returns the exit status, 1 where a program disagrees with eager PyTorch."""
    for name in ("torchao", "torch.utils._pytree"):  # ExecuTorch 1.5.1 imports what they warn of
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    # Imported late: it takes seconds, and what it imports talks about itself.
    from examples.encoder_decoder.program import export_passing, export_translator  # noqa: PLC0415
    from examples.encoder_decoder.translate import (  # noqa: PLC0415
        InSession,
        Passed,
        in_eager,
        translate,
    )

    model = Translator(config or Config())
    source = torch.randint(1, model.config.vocabulary, (model.config.source,))
    length, steps = model.config.source * 3 // 4, min(STEPS, model.config.target)
    progress, console = Console(stderr=True), Console()
    with progress.status("exporting with arenas"):
        program = export_translator(model)
    with progress.status("exporting with the state as inputs and outputs"):
        state = {name: buffer.clone() for name, buffer in model.named_buffers()}
        passing, changed = export_passing(model)
    layout = pa.read_layout(program.buffer)
    console.print(draw_layout(layout, "translator.pte"), end="\n\n", soft_wrap=True)
    eager = translate(in_eager(model), source, length, steps)

    table = Table("state in", "passed per token", "planned", "apart from eager")
    worst = []
    for name, caller, planned in (
        ("arenas", InSession(load_program(program.buffer).session()), layout.planned_bytes),
        (
            "inputs and outputs",
            Passed(passing.buffer, state, changed),
            pa.read_layout(passing.buffer).planned_bytes,
        ),
    ):
        logits = translate(caller, source, length, steps)
        worst.append((logits - eager).abs().max().item())
        moved = f"{caller.moved:,} bytes"
        table.add_row(name, moved, f"{planned:,} bytes", f"{worst[-1]:.1e}")
    console.print(table)
    if all(apart <= TOLERANCE for apart in worst):  # False for NaN
        return 0
    print(f"error: expected at most {TOLERANCE:.0e} from eager PyTorch", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
