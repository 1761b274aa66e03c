"""Control flow (`torch.cond`, `scan`, `map`) in captured methods.

Checked against ExecuTorch 1.5.1: a branch's results stay in memory that the branches and bodies of
the next control flow use as well, so that results which are still needed then change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from pte_arenas.errors import ArenaError
from pte_arenas.normalize import base_of, written_in

_COND = torch.ops.higher_order.cond
_FLOWS = {
    _COND,
    torch.ops.higher_order.map_impl,
    torch.ops.higher_order.scan,
    torch.ops.higher_order.while_loop,
}


def check_bodies(method: str, program: ExportedProgram) -> None:
    """Checks that branches and bodies change nothing from outside.

    Works on a captured (not yet functional) graph.

    Raises:
        ArenaError: One of them does.
    """
    for module in _bodies(program.graph_module):
        if any(base_of(written).op == "placeholder" for written in written_in(module)):
            raise ArenaError(
                f"{method}: expected branches and loop bodies to change no tensor from outside but "
                f"found one that does; return the new value from it, and write it to the buffer "
                f"afterwards"
            )


def keep_results(module: GraphModule, insert_copy: Callable[[Node], Node]) -> None:
    """Copies results of `torch.cond` that more control flow, or what follows it, needs, in place.

    Args:
        module: A method in the edge dialect; its branches and bodies are treated as well.
        insert_copy: Inserts a copy of a tensor at the insertion point of its graph.
    """
    for each in (module, *_bodies(module)):
        order = {node: index for index, node in enumerate(each.graph.nodes)}
        flows = [node for node in each.graph.nodes if node.target in _FLOWS]
        for flow, later in itertools.pairwise(flows):
            results = list(flow.users) if flow.target is _COND else []
            for result in results:
                readers = [user for user in result.users if order[user] >= order[later]]
                if readers:
                    flow.append(result)  # partitioners move it to its readers
                    with each.graph.inserting_after(result):
                        copied = insert_copy(result)
                    for reader in readers:
                        reader.replace_input_with(result, copied)
        each.recompile()


def _bodies(module: GraphModule) -> Iterator[GraphModule]:
    for name, body in module.named_modules():
        if name and isinstance(body, GraphModule):
            yield body
