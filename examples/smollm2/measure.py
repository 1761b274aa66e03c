"""One way to run the model, measured in a process of its own: `python -m ... WAY FILE`.

Prints JSON. Every way reads the same prompt and continues it greedily.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from examples.smollm2.chat import Reader
from examples.smollm2.model import MAX_PREFILL
from pte_arenas.runtime import load_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Load = Callable[[Path], Callable[[str, Tensor, Tensor], Tensor]]

PROMPT = 512
CONTINUED = 64
QUESTION = 16


def random_tokens(count: int) -> Tensor:
    """A prompt without sense, of whole words and pieces of words."""
    return torch.randint(17, 2_000, (count,), generator=torch.Generator().manual_seed(0))


def measure(way: str, path: Path, prompt: int, continued: int) -> dict[str, Any]:
    """Loads a program, reads a prompt and continues it.

    Returns:
        Seconds of loading, of the first token after that and of each further one; resident bytes
        at the most, less what the process had before; the tokens.
    """
    tokens = random_tokens(prompt)
    if way not in OURS:  # imported before it is timed, as ours is
        importlib.import_module("executorch.runtime")
    before = _resident("VmRSS")
    begun = time.perf_counter()
    call = WAYS[way](path)
    loaded = time.perf_counter()
    logits = call("prefill", tokens, torch.arange(prompt))
    found = [int(logits.argmax())]
    first = time.perf_counter()
    for filled in range(prompt + 1, prompt + continued):
        logits = call("decode", torch.tensor(found[-1:]), torch.arange(filled))
        found.append(int(logits.argmax()))
    done = time.perf_counter()
    return {
        "load": loaded - begun,
        "first token": first - loaded,
        "token": (done - first) / max(continued - 1, 1),
        "resident": _resident("VmHWM") - before,
        "tokens": found,
    }


def decode_by_turns(way: str, path: Path, prompt: int, burst: int) -> None:
    """Reads a prompt, then decodes so many tokens for each line of the standard input.

    Prints the seconds of each token, a line for each burst, and one when the prompt is read.
    """
    call = WAYS[way](path)
    tokens = random_tokens(prompt)
    for begin in range(0, prompt, MAX_PREFILL):
        filled = min(begin + MAX_PREFILL, prompt)
        logits = call("prefill", tokens[begin:filled], torch.arange(filled))
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        for _ in range(burst):
            filled += 1
            logits = call("decode", logits.argmax(-1).view(1), torch.arange(filled))
        print((time.perf_counter() - begun) / burst, flush=True)


def measure_fork(path: Path, prompt: int, turns: int) -> dict[str, Any]:
    """Reads a prefix again and again, and forks a session that has read it.

    Returns:
        Seconds of each turn until the first token is known: of reading the prefix with methods that
        are loaded; of forking, loading `decode` and reading one token; and of forking, loading
        `prefill` and reading a question of `QUESTION` tokens.
    """
    program = load_program(path)
    tokens = random_tokens(prompt).tolist()
    reader = Reader(program)
    reader.read(tokens)
    read, forked, asked = [], [], []
    for _ in range(turns):
        reader.session.reset()
        begun = time.perf_counter()
        last = int(reader.read(tokens).argmax())
        between = time.perf_counter()
        reader.fork().read([last]).argmax()
        after = time.perf_counter()
        reader.fork().read(tokens[:QUESTION]).argmax()
        read.append(between - begun)
        forked.append(after - between)
        asked.append(time.perf_counter() - after)
    return {"read": read, "forked": forked, "asked": asked}


def _ours(path: Path, *, weight_cache: bool = True) -> Callable[[str, Tensor, Tensor], Tensor]:
    options = {"XnnpackBackend": {"weight_cache_enabled": weight_cache}}
    session = load_program(path).session(backend_options=options)
    for method in ("prefill", "decode"):
        session.load_method(method)

    def call(method: str, tokens: Tensor, positions: Tensor) -> Tensor:
        logits: Tensor = session.execute(method, (tokens, positions))[0]
        return logits

    return call


def _sharing(path: Path) -> Callable[[str, Tensor, Tensor], Tensor]:
    methods = _stock_methods(path)

    def call(method: str, tokens: Tensor, positions: Tensor) -> Tensor:
        logits: Tensor = methods[method].execute((tokens, positions))[-1]
        return logits

    return call


def _passing(path: Path) -> Callable[[str, Tensor, Tensor], Tensor]:
    methods = _stock_methods(path)
    meta = methods["decode"].metadata
    caches = []
    for index in range(2, meta.num_inputs()):
        info = meta.input_tensor_meta(index)
        dtype = torch.int64 if info.dtype() == 4 else torch.float32  # schema/scalar_type.fbs
        caches.append(torch.zeros(info.sizes(), dtype=dtype))

    def call(method: str, tokens: Tensor, positions: Tensor) -> Tensor:
        *caches[:], logits = methods[method].execute((tokens, positions, *caches))
        found: Tensor = logits
        return found

    return call


def _stock_methods(path: Path) -> dict[str, Any]:
    from executorch.runtime import Runtime  # noqa: PLC0415  # nothing of it where ours is measured

    program = Runtime.get().load_program(path)
    return {name: program.load_method(name) for name in ("prefill", "decode")}


OURS: dict[str, Load] = {
    "ours": _ours,
    "short": _ours,
    "quantized": _ours,
    "uncached": functools.partial(_ours, weight_cache=False),
}
STOCK: dict[str, Load] = {"sharing": _sharing, "reinplaced": _sharing, "passing": _passing}
WAYS = {**OURS, **STOCK}


def _resident(what: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith(what + ":")]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measures what the arguments say."""
    way, path, prompt, number = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5])
    if "--by-turns" in sys.argv:
        decode_by_turns(way, path, prompt, number)
        return
    function = measure_fork if way == "fork" else measure
    arguments = (path, prompt, number) if way == "fork" else (way, path, prompt, number)
    print(json.dumps(function(*arguments)))


if __name__ == "__main__":
    main()
