"""Maps in a real browser: quiet, legible, reachable by keyboard, in light, dark and on paper."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus import file_with, write
from large_program import INSTRUCTIONS, SLOTS, large_program
from test_cli import encoder_decoder
from test_maps import HOSTILE_NAMES

from pte_arenas.lifetimes import read_both
from pte_arenas.maps import draw_html, draw_svg

pytestmark = pytest.mark.browser

GOLDEN = Path(__file__).parent.parent / "golden"
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 400, "height": 800}
# A container has no GPU; and a test makes no requests but its own.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PROGRAMS: dict[str, Callable[[], bytes]] = {
    "counter": (GOLDEN / "counter.pte").read_bytes,
    "mixed": (GOLDEN / "mixed.pte").read_bytes,
    "stock": (GOLDEN / "stock.pte").read_bytes,
    "scratch": lambda: file_with({}),
    "encoder-decoder": lambda: write(encoder_decoder(), b""),
    "hostile": lambda: file_with(HOSTILE_NAMES),
    "long-names": lambda: file_with(
        {
            "arenas[0].name": "a" * 300,
            "arenas[0].slots[0].fullyQualifiedName": "layers." * 60 + "cache",
            "executionPlan[0].name": "m" * 200,
        }
    ),
    "large": large_program,
}

# Pairs of texts in a picture whose boxes overlap, and texts that are cut off by its edge.
BAD_LABELS = """
svg => {
  const edge = svg.getBoundingClientRect();
  const labels = [...svg.querySelectorAll("text")].map(
    text => ({words: text.textContent, box: text.getBoundingClientRect()}));
  const cut = labels.filter(({box}) => box.left < edge.left - 1 || box.right > edge.right + 1
    || box.top < edge.top - 3 || box.bottom > edge.bottom + 3);
  labels.sort((a, b) => a.box.top - b.box.top);
  const bad = cut.map(each => [each.words, "cut off"]);
  labels.forEach((one, i) => {
    for (let j = i + 1; j < labels.length && labels[j].box.top < one.box.bottom - 2; ++j) {
      const other = labels[j];
      if (one.box.left < other.box.right - 1 && other.box.left < one.box.right - 1) {
        bad.push([one.words, other.words]);
      }
    }
  });
  return bad;
}
"""


@functools.cache
def page_of(name: str) -> str:
    return draw_html(*read_both(PROGRAMS[name]()), f"{name}.pte")


@functools.cache
def picture_of(name: str) -> str:
    return draw_svg(*read_both(PROGRAMS[name]()), f"{name}.pte")


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=request.config.getoption("--chromium"), args=ARGUMENTS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Opens the map of a program; whatever it logs or asks the network for fails the test."""
    contexts = []
    noises: list[str] = []

    def open_map(name: str, scheme: str = "light", viewport: Any = WIDE) -> Any:
        path = tmp_path / f"{name}.html"
        path.write_text(page_of(name), encoding="utf-8")
        context = browser.new_context(color_scheme=scheme, viewport=viewport)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noises.append(message.text))
        page.on("pageerror", lambda error: noises.append(str(error)))
        page.on("request", lambda asked: noises.append(asked.url) if asked.url != url else None)
        url = path.as_uri()
        page.goto(url)
        return page

    yield open_map
    folder = request.config.getoption("--screenshots")
    for number, context in enumerate(contexts):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            name = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
            context.pages[0].screenshot(path=Path(folder) / f"{name}-{number}.png")
        context.close()
    noises = [noise for noise in noises if not noise.startswith("data:")]
    assert not noises


def details(page: Any) -> list[str]:
    return page.inner_text("#details").splitlines()


# --- Legible ---


@pytest.mark.parametrize("name", PROGRAMS)
def test_labels_neither_overlap_nor_end_early(opened: Any, name: str) -> None:
    page = opened(name)
    pictures = page.query_selector_all(".figure")
    assert pictures
    for picture in pictures:
        assert picture.evaluate(BAD_LABELS) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_labels_of_the_picture_file(browser: Any, name: str) -> None:
    page = browser.new_page(viewport=WIDE)
    page.set_content(picture_of(name))
    assert page.query_selector("svg").evaluate(BAD_LABELS) == []
    page.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_cut_off(opened: Any, name: str) -> None:
    page = opened(name, viewport=NARROW)
    for each in page.query_selector_all("details"):
        each.evaluate("details => details.open = true")
    cut = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1).length"
    assert page.eval_on_selector_all("td, th, h1, h2, p, li", cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_everything_is_there(opened: Any) -> None:
    page = opened("large")
    assert page.locator("tr[data-key^=slot-]").count() == SLOTS
    assert page.locator("ol").first.locator("li").count() == INSTRUCTIONS
    assert page.locator("[data-key^=tensor-0-]").count() > INSTRUCTIONS


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_schemes(opened: Any, scheme: str) -> None:
    page = opened("mixed", scheme)
    paper = page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor")
    state = page.eval_on_selector(".figure .state", "element => getComputedStyle(element).fill")
    expected = {
        "light": ("rgb(255, 255, 255)", "rgb(159, 216, 196)"),
        "dark": ("rgb(20, 23, 26)", "rgb(29, 107, 83)"),
    }
    assert (paper, state) == expected[scheme]


# --- Reachable ---


def test_tab_reaches_each_slot(opened: Any) -> None:
    page = opened("mixed")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        key = page.evaluate(
            "document.activeElement.matches('tr') && document.activeElement.dataset.key"
        )
        if key:
            seen.append((key, details(page)[0]))
    assert list(dict.fromkeys(seen)) == [
        ("slot-0-0", "flags"),
        ("slot-0-1", "total"),
        ("slot-0-2", "history"),
        ("slot-1-0", "scale"),
    ]


def test_each_of_many_slots_is_a_stop(opened: Any) -> None:
    page = opened("large")
    assert page.locator("tr[data-key^=slot-][tabindex='0']").count() == SLOTS


def test_arrows_go_through_a_picture(opened: Any) -> None:
    page = opened("mixed")
    chart = page.locator("section", has_text="method push").locator(".chart").first
    keys = chart.locator("[data-key]").evaluate_all("all => all.map(each => each.dataset.key)")
    chart.locator("[tabindex='0']").focus()
    seen = [page.evaluate("document.activeElement.dataset.key")]
    for _ in keys[1:]:
        page.keyboard.press("ArrowRight")
        seen.append(page.evaluate("document.activeElement.dataset.key"))
    assert seen == keys
    assert len(keys) > 5
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") == keys[-2]


def test_focus_is_seen(opened: Any) -> None:
    page = opened("mixed")
    page.keyboard.press("Tab")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid"


def test_pointing_shows_details(opened: Any) -> None:
    page = opened("mixed")
    page.hover("tr[data-key=slot-0-2]")
    assert details(page) == [
        "history",
        "slot of stream, float16 [2, 3], 12 bytes",
        "bytes [32, 44)",
        "starts as zeros",
        "declared: peek, rescale read; push reads and writes",
    ]
    # All that is the same slot lights up: its row, its strip, its band in each method.
    lit = page.eval_on_selector_all(".lit", "all => all.map(each => each.dataset.key)")
    assert len(lit) >= 3 and set(lit) == {"slot-0-2"}


def test_hostile_names_are_text(opened: Any) -> None:
    page = opened("hostile")
    page.hover("tr[data-key=slot-0-0]")
    assert details(page)[0].startswith("</title></script><img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0


# --- Search ---


def test_search_finds_slots(opened: Any) -> None:
    page = opened("large")
    page.fill("#query", "LAYERS.77.attention")
    rows = page.locator("tr[data-key^=slot-]:visible")
    assert rows.count() == 4
    assert page.inner_text("#found") == "4 matches"
    page.press("#query", "Enter")
    page.press("#query", "Enter")
    assert page.inner_text("#found") == "2 of 4"
    assert details(page)[0] == "model.layers.77.attention.v_cache"
    page.press("#query", "Escape")
    assert page.inner_text("#found") == ""
    assert rows.count() == SLOTS


def test_search_opens_the_table_of_a_tensor(opened: Any) -> None:
    page = opened("mixed")
    page.fill("#query", "sum.IntList_out")
    page.press("#query", "Enter")
    assert page.locator("details[open] tr.lit").is_visible()
    assert any("sum.IntList_out" in line for line in details(page))


def test_search_for_nothing_there(opened: Any) -> None:
    page = opened("mixed")
    page.fill("#query", "no such name")
    page.press("#query", "Enter")
    assert page.inner_text("#found") == "0 matches"


def test_slash_goes_to_the_search(opened: Any) -> None:
    page = opened("mixed")
    page.keyboard.press("/")
    page.keyboard.type("history")
    assert page.input_value("#query") == "history"
    assert page.locator("tr[data-key^=slot-]:visible").count() == 1


def test_zoom(opened: Any) -> None:
    page = opened("mixed")
    width = "document.querySelector('.chart').getBoundingClientRect().width"
    once = page.evaluate(width)
    page.select_option("#zoom", "4")
    assert page.evaluate(width) == pytest.approx(4 * once)
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"]


# --- On paper ---


def test_print(opened: Any) -> None:
    page = opened("mixed", "dark")
    page.fill("#query", "history")
    page.emulate_media(media="print")
    assert page.is_hidden("#find") and page.is_hidden("#details")
    assert page.locator("tr[data-key^=slot-]:visible").count() == 4
    state = page.eval_on_selector(".figure .state", "element => getComputedStyle(element).fill")
    assert state == "rgb(159, 216, 196)"
    assert page.pdf().startswith(b"%PDF")
