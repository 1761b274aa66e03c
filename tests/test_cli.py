"""The command line, run as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import device, file_with, slot
from corpus import write as write_program

import pte_arenas as pa
from pte_arenas.render import draw_layout
from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Program import ProgramT
from pte_arenas.wire.ProgramArena import ProgramArenaT
from pte_arenas.wire.ProgramArenas import ProgramArenasT
from pte_arenas.wire.ScalarType import ScalarType
from pte_arenas.wire.SlotAccess import SlotAccessT

READ, WRITE, READ_WRITE = range(3)

GOLDEN = Path(__file__).parent / "golden"
RUN = "import sys; from pte_arenas.cli import main; sys.argv[0] = 'pte-arenas'; main()"


PICTURE = """\
seq2seq.pte  2 methods, 1 arena, 1,654,784 bytes planned (2,801,664 if each method had its own)

arena 0  kv_cache  state  1,146,880 bytes  align 64  cpu
  k_cache  [        0,   524,288)  ##############..................  int8 [524288]  encode w  decode rw
  v_cache  [  524,288, 1,048,576)  ..............###############...  int8 [524288]  encode w  decode r

methods   own bytes  without arenas
  encode    407,904       1,554,784  kv_cache on memory id 2
  decode    100,000       1,246,880  kv_cache on memory id 2
"""  # noqa: E501

ODD_PICTURE = """\
odd.pte  2 methods, 2 arenas, 4,226 bytes planned (4,226 if each method had its own)

arena 0  state  state  4,096 bytes  align 64  cpu
  a     [    0,     4)  #...............................  float32 [1]  step rw
  none  [    8,     8)  ................................  float32 [0]  step w
  b     [4,092, 4,096)  ...............................#  float32 [1]

arena 1  scratch  scratch  1 byte  align 64  cuda:0
  step  [0, 0)  ................................

methods  own bytes  without arenas
  step         128           4,225  state on memory id 2  scratch on memory id 3
  peek           1               1
"""

STOCK_PICTURE = """\
stock.pte  1 method, 0 arenas, 48 bytes planned

methods    own bytes
  forward         48
"""


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with its output in a pipe that claims to be 40 columns wide."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "40", **environment},
    )


def encoder_decoder() -> ProgramT:
    """The program of the picture in the documentation."""
    caches = [
        slot("k_cache", [524288], ScalarType.CHAR, nbytes=524288),
        slot("v_cache", [524288], ScalarType.CHAR, offset=524288, nbytes=524288),
    ]
    return ProgramT(
        executionPlan=[
            ExecutionPlanT(
                name="encode",
                nonConstBufferSizes=[0, 407904, 0],
                arenaBindings=[ArenaBindingT(2, 0, [SlotAccessT(0, WRITE), SlotAccessT(1, WRITE)])],
            ),
            ExecutionPlanT(
                name="decode",
                nonConstBufferSizes=[0, 100000, 0],
                arenaBindings=[
                    ArenaBindingT(2, 0, [SlotAccessT(0, READ_WRITE), SlotAccessT(1, READ)])
                ],
            ),
        ],
        programArenas=ProgramArenasT(1, arenas=[ProgramArenaT("kv_cache", 1146880, slots=caches)]),
    )


def test_inspect_draws_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "seq2seq.pte"
    path.write_bytes(write_program(encoder_decoder(), b""))
    done = run("inspect", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == PICTURE


def test_inspect_draws_what_is_unusual(tmp_path: Path) -> None:
    path = tmp_path / "odd.pte"
    tiny = [
        slot("a", [1], nbytes=4),
        slot("none", [0], offset=8),
        slot("b", [1], offset=4092, nbytes=4),
    ]
    changes = {
        "arenas[0].size": 4096,
        "arenas[0].slots": tiny,
        "arenas[1].deviceType": 1,
        "arenas[1].size": 1,
        "executionPlan[0].nonConstBufferDevice": [device(3, 1)],
        "executionPlan[0].values": None,
        "executionPlan[1].nonConstBufferSizes": [0, 1],
        "executionPlan[1].arenaBindings": None,
    }
    path.write_bytes(file_with(changes))
    assert run("inspect", path).stdout == ODD_PICTURE


def test_inspect_draws_a_stock_file() -> None:
    assert run("inspect", GOLDEN / "stock.pte").stdout == STOCK_PICTURE


def test_inspect_prints_json() -> None:
    path = GOLDEN / "mixed.pte"
    report = json.loads(run("inspect", "--json", path).stdout)
    layout = pa.ProgramLayout.model_validate_json(json.dumps(report.pop("layout")))
    assert layout == pa.read_layout(path)
    assert report == {
        "planned_bytes": layout.planned_bytes,
        "unshared_bytes": layout.unshared_bytes,
        "methods": {
            method.name: {
                "planned_bytes": method.planned_bytes,
                "unshared_bytes": alone,
                "used_bytes": {
                    layout.arenas[each.arena].name: each.used_bytes for each in method.bindings
                },
            }
            for method, alone in zip(layout.methods, layout.unshared_by_method, strict=True)
        },
    }
    assert any(each["used_bytes"] for each in report["methods"].values())


def test_bars_are_shorter_where_a_terminal_is_narrow() -> None:
    layout = pa.read_layout(write_program(encoder_decoder(), b""))
    wide, narrow, narrowest = (
        draw_layout(layout, "seq2seq.pte", columns).plain.splitlines() for columns in (200, 80, 40)
    )
    assert wide == PICTURE.splitlines()
    assert narrow[3:5] == [
        "  k_cache  [        0,   524,288)  ####.....  int8 [524288]  encode w  decode rw",
        "  v_cache  [  524,288, 1,048,576)  ....####.  int8 [524288]  encode w  decode r",
    ]
    assert "  .##.  int8" in narrowest[4] and narrowest[6:] == narrow[6:] == wide[6:]


def test_a_full_disk_is_one_sentence() -> None:
    full = Path("/dev/full")
    with full.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-c", RUN, "inspect", GOLDEN / "stock.pte"],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "standard output: no space left on device\n")


NASTY = "\x1b[31m[red]\r\n\x00\x7f\u202e'é"
ESCAPED = r"\u001b[31m[red]\r\n\u0000\u007f\u202e'\u00e9"


@pytest.mark.parametrize(
    "environment", [{}, {"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1"}]
)
def test_names_are_escaped(tmp_path: Path, environment: dict[str, str]) -> None:
    names = {
        "arenas[0].name": NASTY,
        "arenas[0].slots[0].fullyQualifiedName": NASTY,
        "executionPlan[0].name": NASTY,
    }
    path = tmp_path / "[red]\x1b[31m.pte"
    path.write_bytes(file_with(names))
    printed = run("inspect", path, **environment).stdout
    for style in ("\x1b[36m", "\x1b[0m"):
        printed = printed.replace(style, "")
    assert set(printed) <= {chr(code) for code in range(0x20, 0x7F)} | {"\n"}
    assert printed.count(ESCAPED) == 8
    assert printed.startswith(r"[red]\u001b[31m.pte  2 methods")


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        pytest.param({}, False, id="pipe"),
        pytest.param({"FORCE_COLOR": "1"}, True, id="forced"),
        pytest.param({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, id="no-color"),
        pytest.param({"FORCE_COLOR": "1", "TERM": "dumb"}, False, id="dumb"),
    ],
)
def test_styles(environment: dict[str, str], *, colours: bool) -> None:
    printed = run("inspect", GOLDEN / "counter.pte", **environment).stdout
    assert ("\x1b" in printed) is colours


def test_check_accepts() -> None:
    path = GOLDEN / "counter.pte"
    done = run("check", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: valid\n", "")


@pytest.mark.parametrize("command", ["check", "inspect"])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(
            file_with({"arenas[0].alignment": 12}),
            "arenas[0].alignment: expected a power of two but found 12",
            id="rule",
        ),
        pytest.param(
            b"",
            "program: expected a well-formed ExecuTorch program "
            "but found damaged or truncated data",
            id="empty",
        ),
    ],
)
def test_bad_file_is_one_sentence(tmp_path: Path, command: str, data: bytes, sentence: str) -> None:
    path = tmp_path / "bad.pte"
    path.write_bytes(data)
    done = run(command, path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{path}: {sentence}\n")


@pytest.mark.parametrize("command", ["check", "inspect"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [("missing.pte", "no such file or directory"), ("", "is a directory")],
)
def test_unreadable_file_is_one_sentence(
    tmp_path: Path, command: str, name: str, sentence: str
) -> None:
    path = tmp_path / name
    done = run(command, path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{path}: {sentence}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "a.pte", "b.pte"],
        ["nonsense"],
        ["check", "--jsn", "a"],
        ["diff", "a.pte"],
        ["map", "a.pte"],
        ["map", "a.pte", "-o", "a.png"],
        ["budget", "a.pte"],
        ["budget", "a.pte", "--limit", "total"],
        ["budget", "a.pte", "--limit", "total=2KB"],
        ["budget", "a.pte", "--limit", "total=2", "--limit", "total=3"],
        ["budget", "a.pte", "--limit", "total=2", "--region", "x"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: pte-arenas" in done.stderr


POOLS = """\
pools.pte  2 methods, 0 arenas, 200 bytes planned

methods  own bytes
  step         136  128 on memory id 1  8 on memory id 3
  peek          64
"""


def test_inspect_draws_pools(tmp_path: Path) -> None:
    path = tmp_path / "pools.pte"
    changes = {
        "programArenas": None,
        "executionPlan[0].nonConstBufferSizes": [0, 128, 0, 8],
        "executionPlan[0].arenaBindings": None,
        "executionPlan[1].nonConstBufferSizes": [0, 64],
        "executionPlan[1].arenaBindings": None,
    }
    path.write_bytes(file_with(changes))
    assert run("inspect", path).stdout == POOLS


def test_inspect_tells_what_may_be_shared(tmp_path: Path) -> None:
    path = tmp_path / "shared.pte"
    changes = {
        "programArenas": None,
        "executionPlan[0].nonConstBufferSizes": [0, 128, 96, 8],
        "executionPlan[0].arenaBindings": None,
        "executionPlan[1].nonConstBufferSizes": [0, 0, 96],
        "executionPlan[1].arenaBindings": None,
    }
    path.write_bytes(file_with(changes))
    assert run("inspect", path).stdout.endswith("""

memory id 2 is as large in every method: if they share it, pte-arenas adopt --memory-id 2 makes it \
an arena
""")


# --- Comparing ---

DIFFERENCES = """\
old.pte -> new.pte  5 differences

breaks saved states
  slot 'cache'  sizes      [4, 4] -> [16]
  slot 'cache'  dim order  [0, 1] -> [0]

layout only
  program          planned bytes  256 -> 384
  arena 'scratch'  size           32 -> 160
  slot 'cache'     initial value  values -> zeros
"""
CHANGES = {
    "arenas[0].slots[0].sizes": [16],
    "arenas[0].slots[0].dimOrder": [0],
    "arenas[0].slots[0].dataBufferIdx": 0,
    "arenas[1].size": 160,
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.pte"
    path.write_bytes(file_with({}))
    return path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.pte"
    path.write_bytes(file_with(CHANGES))
    return path


def test_diff(old: Path, new: Path) -> None:
    done = run("diff", old, new)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == DIFFERENCES


def test_diff_of_equal_layouts(old: Path) -> None:
    done = run("diff", old, old)
    assert (done.returncode, done.stdout) == (0, "old.pte -> old.pte  the same layout\n")


@pytest.mark.parametrize(("breaking", "status"), [(True, 1), (False, 0)])
def test_diff_of_saved_state(old: Path, new: Path, status: int, *, breaking: bool) -> None:
    if not breaking:
        new.write_bytes(file_with({"arenas[1].size": 160}))
    done = run("diff", "--saved-state", old, new)
    assert done.returncode == status
    assert "layout only" not in done.stdout
    assert ("\nbreaks saved states\n" in done.stdout) is breaking
    if not breaking:
        assert done.stdout == "old.pte -> new.pte  nothing that breaks saved states\n"
    report = json.loads(run("diff", "--saved-state", "--json", old, new).stdout)
    assert (report["same"], report["breaks_saved_state"]) == (False, breaking)


def test_diff_prints_json(old: Path, new: Path) -> None:
    report = json.loads(run("diff", "--json", old, new).stdout)
    found = tuple(pa.Difference.model_validate(each) for each in report["differences"])
    assert found == pa.diff(old, new)
    assert report["same"] is False
    assert json.loads(run("diff", "--json", old, old).stdout) == {
        "same": True,
        "breaks_saved_state": False,
        "differences": [],
    }


@pytest.mark.parametrize("swapped", [False, True])
def test_diff_of_a_bad_file(old: Path, tmp_path: Path, *, swapped: bool) -> None:
    bad = tmp_path / "bad.pte"
    files = [old, bad][:: -1 if swapped else 1]
    done = run("diff", *files)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{bad}: no such file or directory\n"


BUDGET = """\
mixed.pte  1 limit exceeded

  SRAM    260  of 128  132 bytes too many
  stream   44  of 128  84 bytes left

SRAM: the whole program, since nothing in it has this name
  112  43%  method push, memory id 1; 51 live at instruction 6 aten::sum.IntList_out
        24  activation 20, made by 5 dim_order_ops::_to_dim_order_copy.out
        12  activation 16
         8  activation 18, made by 4 aten::add.out
         4  activation 25, made by 6 aten::sum.IntList_out
         3  activation 17, made by 3 aten::logical_not.out
   64  25%  method peek, memory id 1; 23 live at instruction 3 aten::mul.out
        8  output 15, made by 3 aten::mul.out
        8  output 5, made by 0 dim_order_ops::_clone_dim_order.out
        4  activation 12, made by 2 dim_order_ops::_to_dim_order_copy.out
        3  output 8, made by 1 dim_order_ops::_clone_dim_order.out
   44  17%  arena stream
        12  history
         8  total
         3  flags
   32  12%  method rescale, memory id 1; 12 live at instruction 0 aten::mul.out
        8  activation 5, made by 0 aten::mul.out
        4  input 4
    8   3%  arena calibration
        8  scale
"""


def test_budget() -> None:
    done = run("budget", GOLDEN / "mixed.pte", "--limit", "SRAM=128", "--limit", "stream=128")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == BUDGET


def test_kept_budget() -> None:
    region = ("--region", "SRAM=arena:stream, id:1")
    done = run("budget", GOLDEN / "mixed.pte", *region, "--limit", "SRAM=0.25K")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "mixed.pte  within budget\n\n  SRAM  252  of 256  4 bytes left\n"


def test_budget_prints_json() -> None:
    path = GOLDEN / "mixed.pte"
    done = run("budget", path, "--limit", "stream=1K", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report.pop("kept") is True
    assert pa.BudgetReport.model_validate_json(json.dumps(report)) == pa.check_budget(
        path, {"stream": 1024}
    )


@pytest.mark.parametrize("name", ["missing.pte", "counter.pte"])
def test_budget_in_trouble(name: str) -> None:
    done = run("budget", GOLDEN / name, "--limit", "arena:x=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{GOLDEN / name}: ")
    assert done.stderr.count("\n") == 1


# --- JSON of the others ---


def test_check_prints_json(tmp_path: Path) -> None:
    assert json.loads(run("check", "--json", GOLDEN / "counter.pte").stdout) == {"valid": True}
    path = tmp_path / "bad.pte"
    path.write_bytes(file_with({"arenas[0].alignment": 12}))
    done = run("check", "--json", path)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "valid": False,
        "where": "arenas[0].alignment",
        "message": "expected a power of two but found 12",
    }


def test_map_prints_json() -> None:
    path = GOLDEN / "mixed.pte"
    report = json.loads(run("map", "--json", path).stdout)
    timeline = pa.ProgramTimeline.model_validate_json(json.dumps(report["timeline"]))
    assert timeline == pa.read_timeline(path)
    layout = pa.ProgramLayout.model_validate_json(json.dumps(report["layout"]))
    assert layout == pa.read_layout(path)


def test_demo() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "\narena 0  stream  state  " in done.stdout
    assert done.stdout.endswith("""\
call      program  eager PyTorch
push(3)    3.0000         3.0000
push(5)    4.0000         4.0000
push(10)   6.0000         6.0000
reset()
push(8)    8.0000         8.0000
push(4)    6.0000         6.0000
""")


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; from pte_arenas.cli import app; app(['--help'], standalone_mode=False); "
        "print(sorted({'torch', 'executorch', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["inspect", "check", "map"])
def test_reading_does_not_import_torch(command: str) -> None:
    code = (
        f"import sys; from pte_arenas.cli import app; app(['{command}', sys.argv[1], '--json'], "
        "standalone_mode=False); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, GOLDEN / "counter.pte"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False"
