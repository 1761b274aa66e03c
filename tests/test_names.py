"""What is offered in place of a name that is not known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pte_arenas.names import nearest


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("cash", ["k_cache", "steps"], "did you mean 'k_cache'?"),
        ("cache", ["v_cache", "steps", "k_cache"], "did you mean 'v_cache' or 'k_cache'?"),
        ("x", ["steps", "cache"], "there are 'cache', 'steps'"),
        ("x", ["é\n"], r"there are '\u00e9\n'"),
        ("x", [], "there are none"),
        (
            "x",
            [f"n{i}" for i in range(10)],
            "there are 'n0', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7' and 2 more",
        ),
    ],
)
def test_offers_what_is_near_or_what_there_is(name: str, known: list[str], hint: str) -> None:
    assert nearest(name, known) == hint


def test_names_need_no_torch() -> None:
    code = "import pte_arenas.names, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
