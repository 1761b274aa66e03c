"""Computes new state where the state is, instead of beside it.

Stock lowering computes a buffer's new value into an activation as large as the buffer and copies it
back at the end of the method. Here the operator that computes the value writes it into the buffer
itself, and the copy goes away, where the order of the instructions proves that nobody sees it:

1. The memory of a buffer has *occupants* in the order of execution: its old value, then the results
   that are placed in it, the last of which is the new value.
2. Everything that reads an occupant, or a view of it, runs before the next occupant is computed.
   Only an operator that reads an element before it writes the same element (element-wise ones on
   equal sizes and dtype, and scatters of this package into their first argument if it is no other
   argument as well) may itself read the occupant that it replaces.
3. No occupant, nor a view of one, is a result of the method, and none but operators with one output
   and delegates write one.
4. No operator mutates the buffer in any other way.

Where one of these cannot be seen in the graph, the stock form stays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.exir import memory
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.operator.convert import get_out_args_from_opoverload
from executorch.exir.schema import TensorShapeDynamism
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from pte_arenas.kernels import OURS, SCATTERS

_COPY = torch.ops.aten.copy_.default
_GETITEM = operator.getitem
_SCATTERS = frozenset(f"{OURS.name}::{name}" for name in SCATTERS)


@dataclass
class Aliases:
    """A lowered method: the order of its nodes, and which share memory with which."""

    order: dict[Node, int]
    root: dict[Node, Node]
    members: dict[Node, list[Node]] = field(default_factory=dict)

    @staticmethod
    def of(module: GraphModule) -> Aliases:
        """Reads them out of a graph in the form that memory planning gets."""
        nodes = list(module.graph.nodes)
        root: dict[Node, Node] = {}
        for node in nodes:
            source = view_source(node)
            root[node] = root[source] if source is not None else node
        graph = Aliases({node: index for index, node in enumerate(nodes)}, root)
        for node in nodes:
            graph.members.setdefault(root[node], []).append(node)
        return graph

    def readers(self, occupant: Node) -> Iterator[tuple[Node, Node]]:
        """Yields who reads an occupant or a view of it, and which of these."""
        for member in self.members[occupant]:
            for user in member.users:
                if self.root[user] is not occupant:
                    yield user, member


def place_new_values(module: GraphModule, states: Iterable[Node]) -> dict[Node, list[Node]]:
    """Lets operators write new state into the buffers, where that is safe, in place.

    Works on a graph in the form that memory planning gets: with out variants, in the order of
    execution. Removes the copies that this makes needless.

    Args:
        module: The graph.
        states: Placeholders of the buffers to do it for.

    Returns:
        By placeholder, the nodes whose values now live in the buffer, one after the other.
    """
    placed: dict[Node, list[Node]] = {}
    graph = Aliases.of(module)
    dropped: dict[Node, Any] = {}  # nothing but the output reads these copies
    for state in states:
        copies = [user for user in state.users if user.target is _COPY and user.args[0] is state]
        if len(copies) != 1 or copies[0].args[1] is state:
            continue
        chain = _occupants(graph, state, copies[0])
        if not chain:
            continue
        placed[state] = chain
        dropped[copies[0]] = copies[0].args[1]
    if placed:
        _drop(module.graph.output_node(), dropped)
        module.recompile()
    return placed


def _drop(output: Node, copies: Mapping[Node, Any]) -> None:
    """Takes out copies whose sources, given with them, are in their destinations already."""
    results: Any = output.args[0]
    specs = output.meta.get("spec")
    if isinstance(results, (list, tuple)) and isinstance(specs, (list, tuple)):
        output.meta["spec"] = type(specs)(
            copies[result].meta["spec"] if result in copies else spec
            for result, spec in zip(results, specs, strict=True)
        )
    output.args = (map_arg(results, lambda result: copies.get(result, result)),)
    for copy in copies:
        copy.graph.erase_node(copy)


def _occupants(graph: Aliases, state: Node, copy: Node) -> list[Node]:
    """Returns the nodes to place in a buffer, its new value last; none where that is unsafe."""
    last = graph.root[copy.args[1]]  # type: ignore[index]
    if graph.root.get(last) is state or not _can_hold(last, state):
        return []
    chain = [last]
    while True:
        before = _replaced(graph, chain[0], state)
        if before is None:
            break
        chain.insert(0, before)
    while chain and not _safe(graph, state, chain, copy):
        chain.pop(0)
    return chain


def _replaced(graph: Aliases, node: Node, state: Node) -> Node | None:
    """The computed value that a node could replace, if it reads one in the same places."""
    for argument in _aliasable(node):
        before = graph.root[argument]
        if before.op != "placeholder" and before is argument and _can_hold(before, state):
            return before
    return None


def _safe(graph: Aliases, state: Node, chain: list[Node], copy: Node) -> bool:
    """Rules 2 to 4 of this module for the old value and each placed one."""
    for occupant, successor in zip([state, *chain], [*chain, None], strict=True):
        end = graph.order[computed_at(successor)] if successor is not None else None
        for user, member in graph.readers(occupant):
            if user is copy:
                continue
            if user.op == "output" or mutates(user, member):
                return False
            at = graph.order[user]
            if end is None or at < end:
                continue
            if at > end or member not in _aliasable(user):
                return False
    return True


def _can_hold(node: Node, state: Node) -> bool:
    """Whether a node's result may be written to the buffer's memory at all."""
    spec, want = _spec(node), state.meta["spec"]
    return (
        spec is not None
        and spec.shape_dynamism == TensorShapeDynamism.STATIC
        and (spec.dtype, spec.nbytes()) == (want.dtype, want.nbytes())
        and spec.nbytes() > 0
        and not spec.const
    )


def _spec(node: Node) -> Any:
    """The spec of a node that has one output of its own: an out variant or a delegate's."""
    if node.op != "call_function":
        return None
    spec = node.meta.get("spec")
    if node.target is _GETITEM:
        call = node.args[0]
        return spec if isinstance(call, Node) and call.target is executorch_call_delegate else None
    if isinstance(spec, (list, tuple)) or not isinstance(node.target, torch._ops.OpOverload):
        return None
    if not node.target._schema.is_mutable or node.target is _COPY:
        return None
    return spec if len(get_out_args_from_opoverload(node.target)) == 1 else None


def computed_at(node: Node) -> Node:
    """The node at whose execution a value is written."""
    call = node.args[0] if node.target is _GETITEM else node
    return call if isinstance(call, Node) else node


def _aliasable(node: Node) -> list[Node]:
    """The arguments that a node may read from where it writes its result."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return []
    name = node.target._schema.name
    if name in _SCATTERS:
        # What it reads besides the first argument, it reads while it writes.
        once = sum(argument is node.args[0] for argument in _arguments(node)) == 1
        return [node.args[0]] if isinstance(node.args[0], Node) and once else []
    if not _is_pointwise(node.target):
        return []
    spec = node.meta.get("spec")
    return [
        argument
        for argument in node.args
        if isinstance(argument, Node)
        and not isinstance(spec, (list, tuple))
        and _same_layout(argument.meta.get("spec"), spec)
    ]


def _arguments(node: Node) -> list[Node]:
    """The nodes among a node's arguments, as often as they are there."""
    arguments: list[Node] = []
    map_arg(node.args, arguments.append)
    return arguments


def _same_layout(one: Any, other: Any) -> bool:
    return (
        one is not None
        and not isinstance(one, (list, tuple))
        and list(one.shape) == list(other.shape)
        and one.dtype == other.dtype
        and list(one.dim_order) == list(other.dim_order)
    )


@functools.cache
def _is_pointwise(out_variant: torch._ops.OpOverload) -> bool:
    """Whether the operator without `out` is tagged as one that works element by element."""
    namespace, _, short = out_variant._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short)
    inputs = _inputs(out_variant)
    return any(
        _inputs(overload) == inputs and torch.Tag.pointwise in overload.tags
        for overload in (getattr(packet, name) for name in packet.overloads())
        if not overload._schema.is_mutable
    )


def _inputs(overload: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]


def mutates(user: Node, member: Node) -> bool:
    """Whether an operator writes to an argument that is not its output."""
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    for index, argument in enumerate(user.target._schema.arguments):
        value = user.args[index] if index < len(user.args) else user.kwargs.get(argument.name)
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and not argument.is_out and value is member:
            return True
    return False


def view_source(node: Node) -> Node | None:
    """The tensor whose memory a node has, where it has none of its own."""
    if node.op == "call_function" and node.target is memory.view:
        source = node.args[0]
        return source if isinstance(source, Node) else None
    return None
