"""Maps as text: what they hold, and that nothing in a name gets out of its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from corpus import Changes, file_with, slot, value
from test_cli import run

import pte_arenas as pa
from pte_arenas.lifetimes import read_both
from pte_arenas.maps import draw_html, draw_svg
from pte_arenas.maps.drawing import PALETTE, WIDTH, ticks

GOLDEN = Path(__file__).parent / "golden"
NAMES = ["counter", "mixed", "stock"]

HOSTILE = "</title></script><img src=x onerror=alert(1)>\"'&\x00\x1b\u202e\ud7ff"
HOSTILE_NAMES: Changes = {
    "arenas[0].name": HOSTILE,
    "arenas[0].slots[0].fullyQualifiedName": HOSTILE,
    "executionPlan[0].name": HOSTILE,
}


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def keys(self, tag: str) -> list[str | None]:
        return [
            attrs["data-key"] for name, attrs in self.found if name == tag if "data-key" in attrs
        ]


def page(source: Path | bytes) -> Elements:
    return Elements(draw_html(*read_both(source), "name.pte"))


def picture(source: Path | bytes) -> ET.Element:
    return ET.fromstring(draw_svg(*read_both(source), "name.pte"))  # noqa: S314


def boxes(root: ET.Element, key: str) -> list[dict[str, float]]:
    return [
        {name: float(each.attrib[name]) for name in ("x", "y", "width", "height")}
        for each in root.iter()
        if each.attrib.get("data-key") == key
    ]


@pytest.mark.parametrize("name", NAMES)
def test_everything_has_a_row_and_a_shape(name: str) -> None:
    path = GOLDEN / f"{name}.pte"
    layout, timeline = read_both(path)
    slots = [
        f"slot-{a}-{s}" for a, arena in enumerate(layout.arenas) for s in range(len(arena.slots))
    ]
    tensors = [
        f"tensor-{m}-{tensor.value}"
        for m, method in enumerate(timeline.methods)
        for tensor in method.tensors
    ]
    found = page(path)
    assert sorted(found.keys("tr")) == sorted([*slots, *tensors])
    assert set(slots) <= set(found.keys("rect"))
    shapes = {each.attrib.get("data-key") for each in picture(path).iter()}
    assert set(slots) <= shapes


def test_rectangles_are_to_scale() -> None:
    layout, timeline = read_both(GOLDEN / "mixed.pte")
    root = picture(GOLDEN / "mixed.pte")
    arena = layout.arenas[0]
    for s, each in enumerate(arena.slots):
        strip = boxes(root, f"slot-0-{s}")[0]
        assert strip["x"] == pytest.approx(each.offset / arena.size * WIDTH, abs=0.01)
        assert strip["width"] == pytest.approx(each.nbytes / arena.size * WIDTH, abs=0.01)
    push = timeline.methods[-2]
    assert push.name == "push"
    size = layout.method("push").planned_buffers[0].size
    shapes = {
        tensor: boxes(root, f"tensor-{timeline.methods.index(push)}-{tensor.value}")[0]
        for tensor in push.tensors_of([1])
    }
    (height,) = {round(box["height"] / tensor.nbytes * size) for tensor, box in shapes.items()}
    widths = [box["width"] / (tensor.end - tensor.begin) for tensor, box in shapes.items()]
    assert height == 240
    assert widths == pytest.approx([widths[0]] * len(widths), rel=0.01)


EMPTY_FIRST: Changes = {
    "arenas[0].slots": [
        slot("empty", [0]),
        slot("cache", [4, 4], nbytes=64),
        slot("steps", [2], offset=64, nbytes=8),
    ]
}


@pytest.mark.parametrize(
    "program",
    [*(GOLDEN / f"{name}.pte" for name in NAMES), None],
    ids=[*NAMES, "empty-first"],
)
def test_each_picture_is_one_stop(program: Path | None) -> None:
    text = draw_html(*read_both(program or file_with(EMPTY_FIRST)), "name.pte")
    pictures = [
        each for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL) if "data-key" in each
    ]
    assert pictures
    assert [each.count('tabindex="0"') for each in pictures] == [1] * len(pictures)


def test_tiny_slots_show() -> None:
    changes = {
        "arenas[0].size": 1 << 30,
        "arenas[0].slots": [slot("a", [1], nbytes=4), slot("b", [1], offset=1 << 29, nbytes=4)],
        "executionPlan[0].values": None,
        "executionPlan[1].nonConstBufferSizes": [0, 0],
        "executionPlan[1].values": None,
    }
    strip = boxes(picture(file_with(changes)), "slot-0-1")[0]
    assert (strip["x"], strip["width"]) == (WIDTH / 2, 1)


def test_tensors_that_share_bytes_say_so() -> None:
    changes = {"executionPlan[0].values": [value([4], memory_id=1), value([2], memory_id=1)]}
    changes |= {"executionPlan[0].inputs": [0, 1]}
    text = draw_svg(*read_both(file_with(changes)), "name.pte")
    assert "on the same bytes at the same time: value 1" in text


@pytest.mark.parametrize("draw", [draw_html, draw_svg])
def test_names_stay_text(draw: object) -> None:
    text = draw(*read_both(file_with(HOSTILE_NAMES)), HOSTILE)  # type: ignore[operator]
    assert "onerror" in text
    assert "<img" not in text
    assert set(text) <= {chr(code) for code in range(0x20, 0x7F)} | {"\n"}
    found = Elements(text).found
    assert all("onerror" not in attrs for _, attrs in found)
    scripts = [tag for tag, _ in found if tag == "script"]
    assert len(scripts) == (1 if draw is draw_html else 0)


@pytest.mark.parametrize("changes", [{}, HOSTILE_NAMES], ids=["sound", "hostile"])
def test_pictures_are_well_formed(changes: Changes) -> None:
    assert picture(file_with(changes)).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("draw", [draw_html, draw_svg])
def test_nothing_is_fetched(draw: object) -> None:
    text = draw(*read_both(GOLDEN / "mixed.pte"), "name.pte")  # type: ignore[operator]
    assert set(re.findall(r"https?://[^\"' ]*", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|src=", text)


def test_same_program_same_map() -> None:
    for draw in (draw_html, draw_svg):
        texts = {draw(*read_both(GOLDEN / "mixed.pte"), "name.pte") for _ in range(2)}
        assert len(texts) == 1


def test_notebooks_show_layouts() -> None:
    layout = pa.read_layout(GOLDEN / "mixed.pte")
    text = layout._repr_html_()
    found = Elements(text)
    assert found.keys("tr") == ["slot-0-0", "slot-0-1", "slot-0-2", "slot-1-0"]
    assert "<script" not in text
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", style.replace("@media", "}@media"))
    outside = [each for each in selectors if ".pte-map" not in each]
    assert not outside


@pytest.mark.parametrize("program", [{}, {"programArenas": None}], ids=["empty-methods", "stock"])
def test_methods_without_anything(program: Changes) -> None:
    changes = {
        **program,
        "executionPlan[0].nonConstBufferSizes": [0],
        "executionPlan[0].values": None,
        "executionPlan[0].arenaBindings": None,
        "executionPlan[1].nonConstBufferSizes": [0],
        "executionPlan[1].values": None,
        "executionPlan[1].arenaBindings": None,
    }
    assert "method step" in ET.tostring(picture(file_with(changes)), "unicode")


# --- Colours ---


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("shade", [1, 2], ids=["light", "dark"])
@pytest.mark.parametrize(
    "fill", ["paper", "room", "state", "state-b", "input", "output", "activation", "scratch", "own"]
)
def test_labels_have_contrast(fill: str, shade: int) -> None:
    colours = {row[0]: row[shade] for row in PALETTE}
    for words in ["ink", "faint"] if fill == "paper" else ["ink"]:
        low, high = sorted([luminance(colours[words]), luminance(colours[fill])])
        assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize("length", [0, 1, 7, 96, 1280, 10_000, 1 << 40])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("most", [0.5, 3, 20])
def test_ticks(length: int, most: float, *, binary: bool) -> None:
    found = ticks(length, most, binary=binary)
    assert len(found) <= max(1, most) + 1
    assert not binary or found.step.bit_count() == 1
    assert binary or str(found.step).rstrip("0") in {"1", "2", "5"}


# --- The command ---


@pytest.mark.parametrize(
    ("suffix", "begin"), [(".html", "<!doctype html>"), (".svg", "<svg "), (".SVG", "<svg ")]
)
def test_map_command(tmp_path: Path, suffix: str, begin: str) -> None:
    path = tmp_path / f"map{suffix}"
    done = run("map", GOLDEN / "mixed.pte", "-o", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: written\n", "")
    text = path.read_text()
    assert text.startswith(begin)
    assert "mixed.pte" in text
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_map_of_a_bad_file(tmp_path: Path) -> None:
    done = run("map", GOLDEN / "missing.pte", "-o", tmp_path / "map.html")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{GOLDEN / 'missing.pte'}: no such file or directory\n"
    assert not list(tmp_path.iterdir())


def test_map_to_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "no" / "map.html"
    done = run("map", GOLDEN / "counter.pte", "-o", path)
    assert done.returncode == 1
    assert done.stderr == f"{path}: no such file or directory\n"
