"""Takes the markers of state out of lowered programs, so that stock emission can have them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from pte_arenas.capture import NO_INPUT
from pte_arenas.control_flow import keep_results
from pte_arenas.markers import READ, WRITE
from pte_arenas.scatters import use_scatters

_READS = (READ, exir_ops.edge.pte_arenas.read.default)
_WRITES = (WRITE, exir_ops.edge.pte_arenas.write.default)
_FUNCTIONALIZED = (
    torch.ops.higher_order.auto_functionalized,
    torch.ops.higher_order.auto_functionalized_v2,
)
# Stock lowering may turn this copy into another name for the same memory.
_VIEWS = (exir_ops.edge.aten.view_copy.default, torch.ops.aten.view_copy.default)


def lower(program: ExportedProgram, *, dim_order: bool, in_place: bool) -> ExportedProgram:
    """Returns a copy of an edge program without markers.

    Weights are shared with the original, which stays as it is.

    Args:
        program: A method in the edge dialect.
        dim_order: Whether copies are written in the dim-order dialect, the default.
        in_place: Whether state is to be updated where it is, with kernels of this package.
    """
    module = _copy_module(program.graph_module)
    signature = copy.deepcopy(program.graph_signature)
    graph = module.graph
    _drop_inputs(graph, signature)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _READS:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    insert_copy = _copy_in_dim_order if dim_order else _copy
    keep_results(module, insert_copy)
    _keep_old_values(graph, insert_copy)
    _separate_results(graph, signature, insert_copy)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _WRITES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    results: Any = graph.output_node().args[0]
    for spec, value in zip(signature.output_specs, results, strict=True):
        if in_place and spec.kind is OutputKind.BUFFER_MUTATION:
            use_scatters(value)
        if isinstance(value, Node) and isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(name=value.name)
    graph.lint()
    module.recompile()
    call_graph, inputs = program.module_call_graph, program.example_inputs
    if len(signature.user_inputs) != len(program.graph_signature.user_inputs):
        call_graph, inputs = _without_inputs(call_graph), ((), {})
    return ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=signature,
        state_dict=dict(program.state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=call_graph,
        example_inputs=inputs,
        constants=dict(program.constants),
        verifiers=[program.verifier],
    )


def shared_buffers(program: ExportedProgram) -> list[str]:
    """Returns the names of the buffers that an arena held when a program was exported."""
    signature = program.graph_signature
    buffers, mutated = signature.inputs_to_buffers, signature.buffers_to_mutate
    names = []
    for node in program.graph.nodes:
        if node.op != "call_function" or not any(node.args[1:2]):
            continue
        if node.target in _READS:
            names.append(buffers[node.args[0].name])
        elif node.target in _WRITES and node.name in mutated:
            names.append(mutated[node.name])
    return names


def _copy_module(module: GraphModule) -> GraphModule:
    """Copies a graph and those of its branches; tensors and lowered delegates are shared."""
    copied = GraphModule(module, _copy_graph(module.graph))
    copied.meta.update(module.meta)
    for name, child in module.named_children():
        if type(child) is GraphModule or isinstance(child, GraphModule):
            setattr(copied, name, _copy_module(child))
    return copied


def _copy_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    nodes: dict[Node, Node] = {}
    result = copied.graph_copy(graph, nodes, return_output_node=True)
    if result is not None:
        value, old = cast(tuple[Any, Node], result)
        copied.output(value).meta = dict(old.meta)
    for old, new in nodes.items():
        new.meta = dict(old.meta)
        new.name = old.name
    copied._codegen = graph._codegen
    return copied


def _drop_inputs(graph: torch.fx.Graph, signature: ExportGraphSignature) -> None:
    """Drops the input of a method without inputs, and buffers that a method does not touch."""
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    specs = sorted(signature.input_specs, key=lambda spec: spec.arg.name != NO_INPUT)
    mutated = set(signature.buffers_to_mutate.values())
    for spec in specs:  # that of a method without inputs first
        node = nodes[spec.arg.name]
        untouched = spec.kind is InputKind.BUFFER and not node.users
        written = spec.target in mutated
        # Stock planning fails on a method that does nothing and has no input of any kind.
        nothing_else = len(signature.input_specs) == 1 and node.next.op == "output"
        if spec.arg.name == NO_INPUT or (untouched and not written and not nothing_else):
            graph.erase_node(node)
            signature.input_specs.remove(spec)


def _without_inputs(call_graph: list[ModuleCallEntry]) -> list[ModuleCallEntry]:
    entry = call_graph[0]
    nothing = pytree.tree_structure(((), {}))
    signature = dataclasses.replace(
        cast(ModuleCallSignature, entry.signature), inputs=[], in_spec=nothing, forward_arg_names=[]
    )
    return [ModuleCallEntry(entry.fqn, signature), *call_graph[1:]]


def _keep_old_values(graph: torch.fx.Graph, insert_copy: Callable[[Node], Node]) -> None:
    """Copies buffers that an operator changes in place while their old value is still needed.

    Stock emission takes operators with side effects out of their functional form and lets them
    write to the buffer at once; a delegate may read it after that.
    """
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target not in _FUNCTIONALIZED:
            continue
        for state in node.all_input_nodes:
            if state.op != "placeholder":
                continue
            readers = [user for user in state.users if user is not node]
            if any(order[last] > order[node] for last in _with_views(readers)):
                with graph.inserting_before(_first_call(graph)):
                    old = insert_copy(state)
                for reader in readers:
                    reader.replace_input_with(state, old)


def _with_views(nodes: list[Node]) -> list[Node]:
    """Nodes, and the readers of those that are views."""
    found = list(nodes)
    for node in found:
        if node.target in _VIEWS:
            found.extend(node.users)
    return found


def _first_call(graph: torch.fx.Graph) -> Node:
    return cast(Node, next(node for node in graph.nodes if node.op != "placeholder"))


def _separate_results(
    graph: torch.fx.Graph, signature: ExportGraphSignature, insert_copy: Callable[[Node], Node]
) -> None:
    """Copies results that would change, or get lost, when the buffers take their new values.

    Stock writes all new values back at the end of the method, one buffer after the other. A new
    value that is another buffer (or a view of one), and a result of the method that is a buffer
    about to be written, must be copied before that. Stock also needs a node of its own for each
    new value.
    """
    output = graph.output_node()
    results: list[Any] = list(cast(Any, output.args[0]))
    mutated = {
        spec.target for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION
    }
    state = {
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind is InputKind.BUFFER and spec.target in mutated
    }
    taken: set[Node] = set()
    for index, spec in enumerate(signature.output_specs):
        value = results[index]
        if not isinstance(value, Node):
            continue
        source = _base(value, _WRITES)
        base = _base(source, (*_VIEWS, *_WRITES))
        if spec.kind is OutputKind.BUFFER_MUTATION:
            clash = base.op == "placeholder" or source in taken
        else:
            clash = base.op == "placeholder" and base.name in state
        if clash:
            with graph.inserting_before(output if value is source else value):
                copied = insert_copy(source)
            if value is source:
                results[index] = copied
            else:
                value.update_arg(0, copied)
            source = copied
        taken.add(source)
    output.args = (tuple(results),)


def _base(node: Any, through: Iterable[Any]) -> Any:
    while node.op == "call_function" and node.target in through:
        node = node.args[0]
    return node


def _copy_in_dim_order(source: Node) -> Node:
    value = source.meta["val"]
    node = source.graph.call_function(
        exir_ops.edge.dim_order_ops._clone_dim_order.default,
        (source,),
        {"dim_order": list(value.dim_order())},
    )
    node.meta = {"val": value.clone()}
    return node


def _copy(source: Node) -> Node:
    node = source.graph.call_function(exir_ops.edge.aten.clone.default, (source,))
    node.meta = {"val": source.meta["val"].clone()}
    return node
