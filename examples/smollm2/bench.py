"""The model beside stock ExecuTorch: speed, memory, size, and what forking a conversation saves."""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import pte_arenas as pa
from bench.rows import Row
from bench.rows import compare as compare_turns
from examples.smollm2.measure import CONTINUED, PROMPT, QUESTION
from examples.smollm2.program import export_smollm2
from examples.smollm2.progress import stages
from examples.smollm2.stock import export_passing, export_sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from examples.smollm2.model import SmolLM2

SHORT = 256
"""Positions of the small cache that the large one is compared with."""

EXPORTS: dict[str, Callable[[SmolLM2], Any]] = {
    "ours": export_smollm2,
    "sharing": export_sharing,
    "reinplaced": partial(export_sharing, run_reinplace_pass=True),
    "passing": export_passing,
    "quantized": partial(export_smollm2, quantize=True),
}

_row = partial(compare_turns, confident=True)
MEASURE = (sys.executable, "-W", "ignore", "-m", "examples.smollm2.measure")
COMPARISONS = ("comparing with stock", "decoding by turns", "comparing contexts", "forking")
BURST = 4
"""Tokens that one of two processes decodes while the other waits."""
TURNS = 24
"""How often each of them does."""

AGAINST = {
    "sharing": "stock, share_mutable_buffers",
    "reinplaced": "the same, run_reinplace_pass",
    "passing": "stock, cache as input and output",
}
WHAT = {
    "load": ("load both methods", "s", None),
    "first token": (f"first token after a prompt of {PROMPT}", "s", None),
    "token": (f"each of {CONTINUED - 1} tokens after it", "s/token", None),
    "resident": ("resident at the most", "B", 1.0),
}


def measure_all(
    make_model: Callable[[int], SmolLM2],
    folder: Path,
    context: int,
    turns: int,
    console: Console,
) -> Iterator[Row]:
    """Measures everything; shows a progress bar.

    Args:
        make_model: Makes the model with a KV cache of so many positions.
        folder: Where the programs are, or go.
        context: Positions of the KV cache.
        turns: Processes for each measurement.
        console: Where the progress goes.
    """
    with stages(console, ("exporting", *COMPARISONS)) as begin:
        begin("exporting")
        paths = write_programs(make_model, folder, context)
        yield from compare_programs(paths, context, turns, begin)


def write_programs(
    make_model: Callable[[int], SmolLM2], folder: Path, context: int
) -> dict[str, Path]:
    """Exports the model in all ways but those that the folder has already, of the same sources."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = paths_in(folder, context)
    for name, path in paths.items():
        if not path.exists():
            export = EXPORTS["ours" if name == "short" else name]
            manager = export(make_model(SHORT if name == "short" else context))
            unfinished = path.with_suffix(".tmp")
            unfinished.write_bytes(manager.buffer)
            unfinished.rename(path)
    return paths


def paths_in(folder: Path, context: int) -> dict[str, Path]:
    """Where the programs are, by what they are; files of other sources have other names."""
    positions = dict.fromkeys(EXPORTS, context) | {"short": SHORT}
    return {
        name: folder / f"{name}-{number}-{_digest(name)}.pte" for name, number in positions.items()
    }


def _digest(name: str) -> str:
    """Stands for all that a program is made by."""
    examples = Path(__file__).parent
    makers = [examples / f"{module}.py" for module in ("model", "program", "stock", "weights")]
    makers.append(examples.parent / "stock.py")
    if name not in AGAINST:
        makers += sorted(Path(pa.__file__).parent.glob("*.py"))
    digest = hashlib.sha256(version("executorch").encode())
    for path in makers:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def compare_programs(
    paths: dict[str, Path],
    context: int,
    turns: int,
    begin: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Measures everything; `begin` is called with the name of each of `COMPARISONS`."""
    begin(COMPARISONS[0])
    yield from compare(paths, turns)
    begin(COMPARISONS[1])
    yield from (compare_decoding(paths, name, pairs=turns) for name in AGAINST)
    nearly_full = context - 1 - TURNS * BURST
    yield compare_decoding(paths, "reinplaced", pairs=turns, prompt=nearly_full)
    begin(COMPARISONS[2])
    yield compare_contexts(paths, turns)
    begin(COMPARISONS[3])
    yield from compare_fork(paths["ours"], turns)


def compare(
    paths: dict[str, Path], turns: int, prompt: int = PROMPT, continued: int = CONTINUED
) -> list[Row]:
    """Runs each way in processes of its own, by turns.

    Raises:
        ValueError: Two ways gave different tokens.
    """
    ways = ("ours", "uncached", *AGAINST, "quantized")
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, found in runs.items():
            found.append(
                run(name, paths["ours" if name == "uncached" else name], prompt, continued)
            )
    tokens = {name: found[0]["tokens"] for name, found in runs.items() if name != "quantized"}
    if any(other != tokens["ours"] for other in tokens.values()):
        raise ValueError(f"expected the same tokens from every way but found {tokens}")
    rows = []
    for measure, (what, unit, goal) in WHAT.items():
        measured = {name: [one[measure] for one in found] for name, found in runs.items()}
        ours = measured["ours"]
        for name, against in AGAINST.items():
            rows.append(_row(what, against, measured[name], ours, unit, goal))
        uncached = "ours without XNNPACK's weight cache"
        rows.append(_row(what, uncached, measured["uncached"], ours, unit, None))
        rows.append(
            _row(f"8da4w: {what}", "ours, float32", ours, measured["quantized"], unit, None)
        )
    for what, size, goal in (("planned", _planned, 1.0), ("file", _size, 1.001)):
        sizes = {name: size(paths, name) for name in EXPORTS}
        for name, against in AGAINST.items():
            rows.append(Row(what, against, sizes[name], sizes["ours"], "B", goal))
        small = sizes["quantized"]
        rows.append(Row(f"8da4w: {what}", "ours, float32", sizes["ours"], small, "B"))
    return rows


def _planned(paths: dict[str, Path], name: str) -> int:
    return planned_bytes(paths[name], shared=name in AGAINST)


def _size(paths: dict[str, Path], name: str) -> int:
    return paths[name].stat().st_size


def compare_decoding(
    paths: dict[str, Path],
    name: str,
    pairs: int,
    prompt: int = PROMPT,
    turns: int = TURNS,
    burst: int = BURST,
) -> Row:
    """Decodes in two processes by turns so short that what else the machine does hits both.

    Whichever process is started second is some percent faster, so that each is as often; a pair of
    processes gives one ratio.
    """
    theirs, mine = [], []
    for pair in range(pairs):
        ways = (name, "ours") if pair % 2 else ("ours", name)
        with (
            start_decoding(ways[0], paths[ways[0]], prompt, burst) as first,
            start_decoding(ways[1], paths[ways[1]], prompt, burst) as second,
        ):
            bursts = [(next(first), next(second)) for _ in range(turns)]
        found = dict(zip(ways, map(statistics.median, zip(*bursts, strict=True)), strict=True))
        theirs.append(found[name])
        mine.append(found["ours"])
    what = f"each token after {prompt:,}, by turns of {burst}"
    against = AGAINST.get(name, f"ours, a context of {SHORT}")
    return _row(what, against, theirs, mine, "s/token", 1 / 0.97)


@contextmanager
def start_decoding(way: str, path: Path, prompt: int, burst: int) -> Iterator[Iterator[float]]:
    """Starts a process; each item is the seconds that a token of another burst took."""
    arguments = [way, str(path), str(prompt), str(burst), "--by-turns"]
    pipe = subprocess.PIPE
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*MEASURE, *arguments], stdin=pipe, stdout=pipe, stderr=errors, text=True
        ) as child,
    ):
        if child.stdin is None or child.stdout is None:
            raise ValueError("expected pipes to the process but found none")
        requests, answers = child.stdin, child.stdout

        def answer() -> str:
            if line := answers.readline():
                return line
            child.wait()
            raise _ended(way, path, errors)

        def bursts() -> Iterator[float]:
            while True:
                requests.write("\n")
                requests.flush()
                yield float(answer())

        while answer() != "ready\n":  # libraries may have something to say
            pass
        yield bursts()


def _ended(way: str, path: Path, errors: IO[str]) -> RuntimeError:
    errors.seek(0)
    return RuntimeError(f"{path}: expected it to run as {way!r} but found\n{errors.read()}")


def compare_contexts(paths: dict[str, Path], turns: int) -> Row:
    """The same tokens at the same positions with a large cache and with a small one."""
    prompt = SHORT - TURNS * BURST - 1
    return compare_decoding(paths, "short", pairs=turns, prompt=prompt)


def compare_fork(path: Path, turns: int, prompt: int = PROMPT) -> list[Row]:
    """The first token of a fork, its loading included, against reading the prefix again."""
    found = run("fork", path, prompt, turns)
    what = f"first token of a fork of {prompt} tokens"
    against, read = "ours, reading them again", found["read"]
    return [
        _row(what, against, read, found["forked"], "s", 0.05),
        _row(f"{what}, after {QUESTION} more", against, read, found["asked"], "s", None),
    ]


def run(way: str, path: Path, prompt: int, number: int) -> dict[str, Any]:
    """Measures in a process of its own."""
    arguments = [way, str(path), str(prompt), str(number)]
    with TemporaryFile("w+") as errors:
        child = subprocess.run(
            [*MEASURE, *arguments], check=False, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        if child.returncode:
            raise _ended(way, path, errors)
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found


def planned_bytes(path: Path, *, shared: bool) -> int:
    """Bytes that the methods of a program plan.

    Args:
        path: The program.
        shared: Whether memory ids are shared, as `executorch.runtime` shares those of stock
            programs: each is allocated once, in its largest size.
    """
    layout = pa.read_layout(path)
    if not shared:
        return layout.planned_bytes
    largest: dict[int, int] = {}
    for method in layout.methods:
        for memory_id, buffer in enumerate(method.planned_buffers, start=1):
            largest[memory_id] = max(largest.get(memory_id, 0), buffer.size)
    return sum(largest.values())
