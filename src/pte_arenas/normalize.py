"""Brings a captured method into a form that stock lowering gets right.

Stock lowering of stateful methods goes wrong in known ways (checked against ExecuTorch 1.5.1):
buffers that take over another buffer's value or share a new value are dropped or refused, writes
that broadcast or cast lose their shape or dtype, and a buffer named like an input is confused with
it. Each function here removes one such cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node

from pte_arenas.errors import ArenaError
from pte_arenas.markers import READ, WRITE
from pte_arenas.state import Buffer
from pte_arenas.views import View, view_steps

_aten = torch.ops.aten
_RENAMED = ".pte_arenas_renamed"
_SCALAR_FILLS = (_aten.fill_.Scalar, _aten.zero_.default)
_WHOLE_WRITES = (
    _aten.copy_.default,
    _aten.fill_.Tensor,
    *_SCALAR_FILLS,
)
_VIEW_OPS = {
    "view": _aten.view.default,
    "slice": _aten.slice.Tensor,
    "select": _aten.select.int,
    "permute": _aten.permute.default,
    "unsqueeze": _aten.unsqueeze.default,
}


def mutated_buffers(method: str, program: ExportedProgram) -> set[str]:
    """Returns the names of the buffers that a captured (not yet functional) graph mutates.

    Raises:
        ArenaError: It mutates a parameter, or a tensor that is not a registered buffer.
    """
    inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    mutated: set[str] = set()
    for written in written_in(program.graph_module):
        base = base_of(written)
        spec = inputs.get(base.name) if base.op == "placeholder" else None
        if spec is None or spec.target is None:
            continue
        if spec.kind is InputKind.PARAMETER:
            raise ArenaError(
                f"{method}: expected parameters to stay as they are but found that the method "
                f"mutates {spec.target!r}; state must be a buffer: register_buffer instead of a "
                f"Parameter"
            )
        if spec.kind is InputKind.CONSTANT_TENSOR:
            raise ArenaError(
                f"{method}: expected state in registered buffers but found that the method mutates "
                f"a tensor that is not one ({spec.target!r}), shape "
                f"{tuple(written.meta['val'].shape)}; register it with register_buffer"
            )
        if spec.kind is InputKind.BUFFER:
            mutated.add(spec.target)
    return mutated


def has_strided_input(program: ExportedProgram) -> bool:
    """Whether an example input is in another memory format than the contiguous one."""
    inputs = set(program.graph_signature.user_inputs)
    return any(
        isinstance(node.meta["val"], torch.Tensor) and not node.meta["val"].is_contiguous()
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in inputs
    )


def merge_tied(program: ExportedProgram, root: int, buffer: Buffer) -> None:
    """Makes one input of all names that a method has for one buffer, in place.

    Works on a captured (not yet functional) graph: the other names become views of the first.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = {
        spec.target: spec
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.BUFFER
    }
    ties = {
        name: view for (index, name), view in buffer.ties.items() if index == root and name in specs
    }
    if not ties:
        return
    base = nodes[specs[buffer.names[root]].arg.name]
    for name, view in ties.items():
        node = nodes[specs[name].arg.name]
        with program.graph.inserting_before(_first_call(program.graph)):
            node.replace_all_uses_with(_part(base, view))
        program.graph.erase_node(node)
        program.graph_signature.input_specs.remove(specs[name])
        program.state_dict.pop(name, None)
        program.constants.pop(name, None)
    program.graph_module.recompile()


def functionalize(program: ExportedProgram) -> ExportedProgram:
    """Returns the program with every mutation as a new value."""
    with torch.no_grad():
        functional: ExportedProgram = program.run_decompositions({})
    return functional


def spell_out_writes(program: ExportedProgram) -> None:
    """Makes the value of every in-place copy a node of its own, of the right dtype and shape.

    Works in place on a captured (not yet functional) graph. Making that functional replaces a
    `copy_` by its source: a broadcast or cast is lost, and two buffers that take one value, or a
    buffer that takes another's, are refused. Lowering has no `fill_` from a tensor.
    """
    graph = program.graph
    taken: set[Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _WHOLE_WRITES:
            continue
        destination = node.args[0]
        fills = node.target in _SCALAR_FILLS
        known = (*destination.meta["val"].shape, *node.args[1:])
        if fills and not all(isinstance(number, (int, float)) for number in known):
            continue  # lowering gets these right, only less exactly what they read
        with graph.inserting_before(node):
            value = _written_value(node, destination.meta["val"])
            base = base_of(value)
            if base.op == "placeholder" or base in taken:
                value = _call(WRITE, value)
            taken.add(base)
            copied = graph.call_function(_aten.copy_.default, (destination, value))
        copied.meta = dict(node.meta)
        node.replace_all_uses_with(copied)
        graph.erase_node(node)
    program.graph_module.recompile()


def _written_value(node: Node, want: torch.Tensor) -> Node:
    """Inserts what an in-place copy or fill leaves in its destination, in full."""
    value: Any = node.args[1] if len(node.args) > 1 else 0
    if not isinstance(value, Node):
        full = node.graph.call_function(
            _aten.full.default, (list(want.shape), value), {"dtype": want.dtype}
        )
        full.meta["val"] = want.new_full(want.shape, value)
        return full
    if value.meta["val"].dtype != want.dtype:
        value = _call(_aten.to.dtype, value, want.dtype)
    if value.meta["val"].shape != want.shape:
        value = _call(_aten.expand_as.default, value, node.args[0])
    return cast(Node, value)


def simplify_scatters(program: ExportedProgram) -> None:
    """Makes partial writes slices of the buffer and nothing else, in place.

    Works on a functional graph. There a copy is its source, which `spell_out_writes` has given the
    right dtype and shape, and one index is a slice of one: lowering makes a mask as large as the
    buffer out of `select_scatter`.
    """
    for node in list(program.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is _aten.copy.default:
            have, want = node.args[1].meta["val"], node.args[0].meta["val"]
            if (have.dtype, have.shape) == (want.dtype, want.shape):
                node.replace_all_uses_with(node.args[1])
                program.graph.erase_node(node)
        elif node.target is _aten.select_scatter.default and isinstance(node.args[3], int):
            state, source, dim, index = node.args
            index %= state.meta["val"].shape[dim]
            with program.graph.inserting_before(node):
                row = _call(_aten.unsqueeze.default, source, dim % state.meta["val"].dim())
                written = program.graph.call_function(
                    _aten.slice_scatter.default, (state, row, dim, index, index + 1)
                )
            written.meta = dict(node.meta)
            node.replace_all_uses_with(written)
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def drop_clones(program: ExportedProgram) -> None:
    """Uses a computed value itself wherever a copy of it is asked for, in place.

    Nothing changes a value in a functional graph, and copies that matter later are made where
    markers are taken out. XNNPACK refuses to return both a value and its copy from a delegate.
    """
    graph = program.graph
    for node in list(graph.nodes):
        if node.target is not _aten.clone.default or base_of(node.args[0]).op == "placeholder":
            continue
        source = node.args[0]
        if node.meta["val"].stride() == source.meta["val"].stride():
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    for spec, value in zip(
        program.graph_signature.output_specs, graph.output_node().args[0], strict=True
    ):
        if isinstance(value, Node) and isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(name=value.name)
    program.graph_module.recompile()


def mark_state(program: ExportedProgram, names: Mapping[str, bool]) -> None:
    """Puts the markers of `markers.py` around buffers of a functional graph, in place.

    Args:
        program: The method.
        names: The buffers to mark, and whether an arena holds them.
    """
    graph, signature = program.graph, program.graph_signature
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    for spec in signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.target in names:
            state = placeholders[spec.arg.name]
            readers = list(state.users)
            with graph.inserting_before(_first_call(graph)):
                read = _call(READ, state, names[spec.target])
            for reader in readers:
                reader.replace_input_with(state, read)
    output = graph.output_node()
    results = list(output.args[0])
    for index, result in enumerate(signature.output_specs):
        if result.kind is OutputKind.BUFFER_MUTATION and result.target in names:
            with graph.inserting_before(output):
                value = results[index]
                shared = names[result.target]
                if value.target is WRITE and value.meta["val"].is_contiguous():
                    value.args = (value.args[0], shared)
                    continue
                if not value.meta["val"].is_contiguous():
                    contiguous = torch.contiguous_format
                    value = _call(_aten.clone.default, value, memory_format=contiguous)
                results[index] = _call(WRITE, value, shared)
    output.args = (tuple(results),)
    for node, result in zip(results, signature.output_specs, strict=True):
        if isinstance(node, Node) and isinstance(result.arg, TensorArgument):
            result.arg = TensorArgument(name=node.name)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def rename_buffers(program: ExportedProgram) -> dict[str, str]:
    """Gives another name to every buffer that is named like an input, in place.

    Stock lowering finds the target of a write by a name that may be either's. A dotted name is
    never an input's; a module with a buffer `x` has no submodule `x`, so that the name is free.
    `user_name` gives the old name back.

    Returns:
        The new names by the old.
    """
    signature = program.graph_signature
    inputs = {spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT}
    renamed: dict[str, str] = {}
    for spec in signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.target in inputs:
            renamed[spec.target] = spec.target = spec.target + _RENAMED
    for result in signature.output_specs:
        if result.kind is OutputKind.BUFFER_MUTATION:
            result.target = renamed.get(result.target, result.target)
    for values in (program.state_dict, program.constants):
        for old, new in renamed.items():
            if old in values:
                values[new] = values.pop(old)
    return renamed


def user_name(name: str) -> str:
    """Returns the name that a buffer has in the user's module."""
    return name.removesuffix(_RENAMED)


def written_in(module: torch.fx.GraphModule) -> Iterator[Node]:
    """Yields every node that some operator of the graph writes to."""
    for node in module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, value in _arguments(node):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from (item for item in _nodes(value))


def base_of(node: Any) -> Node:
    """Follows views back to the tensor whose memory a node has."""
    while node.op == "call_function":
        if getattr(node.target, "__name__", "") == "getitem":
            node = node.args[0]
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            break
        aliases = {
            name
            for result in node.target._schema.returns
            if result.alias_info is not None
            for name in result.alias_info.before_set
        }
        source = next(
            (
                item
                for argument, value in _arguments(node)
                if argument.alias_info is not None and argument.alias_info.before_set & aliases
                for item in _nodes(value)
            ),
            None,
        )
        if source is None:
            break
        node = source
    return cast(Node, node)


def _arguments(node: Node) -> Iterator[tuple[Any, Any]]:
    for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if index < len(node.args):
            yield argument, node.args[index]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes(item)


def _first_call(graph: torch.fx.Graph) -> Node:
    return cast(Node, next(node for node in graph.nodes if node.op != "placeholder"))


def _call(op: Any, first: Node, *args: Any, **kwargs: Any) -> Node:
    """Inserts a call at the graph's insertion point, with the fake value of its result."""
    node = first.graph.call_function(op, (first, *args), kwargs)
    values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in (first, *args)]
    with torch.no_grad():
        node.meta["val"] = op(*values, **kwargs)
    return node


def _part(base: Node, view: View | None) -> Node:
    """Inserts what makes a view of a contiguous base."""
    if view is None:
        return base
    node: Node = base
    for op, *args in view_steps(tuple(base.meta["val"].shape), view) or ():
        node = _call(_VIEW_OPS[op], node, *args)
    return node
