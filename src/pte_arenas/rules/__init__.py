"""The rules of the format (docs/checks.md), in the documented order, over a layout.

Here stands every rule between values of a file. `ProgramLayout` applies them to itself, so that
the reader, the emitter and people who build a layout by hand share them. The reader applies them
before the layout's types are sure: where the file has a value that a field's type cannot hold, the
field holds the file's number and the rule says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.arenas import check_arenas
from pte_arenas.rules.plans import check_plan
from pte_arenas.rules.tensors import quoted

if TYPE_CHECKING:
    from pte_arenas.layout import ProgramLayout


def check_layout(layout: ProgramLayout) -> None:
    """Checks every rule of docs/checks.md that can be decided from the layout.

    Raises:
        InvalidProgramError: With the path and the sentence of the first broken rule.
    """
    if layout.format != 1:
        raise InvalidProgramError("program_arenas.format", f"expected 1 but found {layout.format}")
    for i, feature in enumerate(layout.required_features):  # Version 1 knows none.
        raise InvalidProgramError(
            f"program_arenas.required_features[{i}]",
            f"expected a feature that this reader knows but found {quoted(feature)}",
        )
    check_arenas(layout.arenas, layout.initial_data)
    for m, method in enumerate(layout.methods):
        check_plan(f"execution_plan[{m}]", method, layout.arenas)
