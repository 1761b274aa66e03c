"""Captures a method of a user's module as a graph, without touching the module."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pte_arenas.assignments import Assignments
from pte_arenas.declare import EntryPoint
from pte_arenas.errors import ArenaError
from pte_arenas.python_state import PythonState

# The stock pass that lifts scalar constants writes them in the wrong order when a method has no
# input (checked against ExecuTorch 1.5.1), so such a method gets this one until it is emitted.
NO_INPUT = "pte_arenas_no_input"


class ModuleCopies:
    """Structural copies of the user's modules: own Python state, the user's tensors.

    A method that assigns attributes while it is traced changes the copy only, and modules that
    share a submodule still share its copy.

    Args:
        roots: The modules to copy, with all of their submodules.
        replacements: Other tensors for some of the buffers, by the `id` of the buffer.
    """

    def __init__(
        self, roots: Iterable[torch.nn.Module], replacements: Mapping[int, torch.Tensor]
    ) -> None:
        self._replacements = replacements
        self._memo: dict[int, Any] = {}
        self._originals: list[torch.nn.Module] = []
        for root in roots:
            for module in root.modules():
                if id(module) not in self._memo:
                    self._memo[id(module)] = object.__new__(type(module))
                    self._originals.append(module)
        for module in self._originals:
            self._share_tensors(module)
        for module in self._originals:
            shell = self._memo[id(module)]
            for name, value in vars(module).items():
                shell.__dict__[name] = self._copy(value)
        self._before = {id(module): PythonState(self.of(module)) for module in self._originals}

    def of(self, module: torch.nn.Module) -> torch.nn.Module:
        """Returns the copy of one of the modules."""
        copied: torch.nn.Module = self._memo[id(module)]
        return copied

    def check_unchanged(self, root: torch.nn.Module, method: str) -> None:
        """Refuses a method that kept state where export cannot see it.

        Raises:
            ArenaError: The traced method changed an attribute that is not a registered buffer.
        """
        for prefix, module in root.named_modules():
            for name in self._before[id(module)].changed(self.of(module)):
                attribute = f"{prefix}.{name}" if prefix else name
                raise ArenaError(
                    f"{method}: expected state in registered buffers but found that the method "
                    f"changes the attribute {attribute!r}, which export cannot see; make it a "
                    f"tensor and register it with register_buffer({name!r}, ...) in __init__"
                )

    def _share_tensors(self, module: torch.nn.Module) -> None:
        for parameter in module._parameters.values():
            if parameter is not None:
                # Lowering fails on weights that require grad; the copy shares their memory.
                self._memo.setdefault(
                    id(parameter), torch.nn.Parameter(parameter.detach(), requires_grad=False)
                )
        for value in (module._buffers, *vars(module).values()):
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, torch.Tensor) and id(leaf) not in self._memo:
                    # A call that recorded gradients leaves buffers that require them.
                    own = leaf.detach() if leaf.requires_grad else leaf
                    self._memo[id(leaf)] = self._replacements.get(id(leaf), own)

    def _copy(self, value: Any) -> Any:
        if isinstance(value, types.MethodType) and id(value.__self__) in self._memo:
            return types.MethodType(value.__func__, self._memo[id(value.__self__)])
        try:
            return copy.deepcopy(value, self._memo)
        except Exception:  # noqa: BLE001  # a lock, a file: nothing that tracing could change
            return value


@dataclass(frozen=True)
class Target:
    """The module and the function behind an entry point."""

    module: torch.nn.Module
    call: Callable[..., Any]
    signature: inspect.Signature

    @staticmethod
    def of(method: str, entry: EntryPoint) -> Target:
        """Resolves what an entry point calls.

        Raises:
            ArenaError: It is neither a module nor a bound method of one.
        """
        target = entry.target
        owner: Any
        function: Any
        if isinstance(target, torch.nn.Module):
            owner, function = target, torch.nn.Module.__call__
            signature = inspect.signature(target.forward)
        else:
            owner, function = getattr(target, "__self__", None), getattr(target, "__func__", None)
            if not isinstance(owner, torch.nn.Module) or function is None:
                raise ArenaError(
                    f"{method}: expected a torch.nn.Module or a bound method of one but found "
                    f"{target!r}"
                )
            signature = inspect.signature(target)
        if isinstance(owner, torch._dynamo.OptimizedModule):
            raise ArenaError(
                f"{method}: expected a module as it was written but found one that torch.compile "
                f"made; give the module that was compiled"
            )
        return Target(owner, function, signature)


def capture(
    method: str, entry: EntryPoint, target: Target, copies: ModuleCopies, *, contiguous: bool
) -> torch.export.ExportedProgram:
    """Exports one entry point to a graph in which mutations are still in place.

    Args:
        method: Name of the method, for messages.
        entry: The entry point.
        target: What it calls.
        copies: Copies of the user's modules; the graph is traced on these.
        contiguous: Whether inputs in other memory formats are first made contiguous.

    Raises:
        ArenaError: The method keeps state outside of buffers.
    """
    shell = _shell(
        method, target, copies.of(target.module), contiguous, bool(entry.args or entry.kwargs)
    )
    args, kwargs = _fresh(entry.args), _fresh(dict(entry.kwargs))
    if not args and not kwargs:
        args = (torch.zeros(0),)
    with torch.no_grad(), _ExportErrors(method):
        program = torch.export.export(
            shell, args, kwargs, dynamic_shapes=_shapes(entry), strict=False
        )
    copies.check_unchanged(target.module, method)
    return program


def _shapes(entry: EntryPoint) -> Any:
    if not entry.args and not entry.kwargs:
        return None
    return entry.dynamic_shapes


def _shell(
    method: str, target: Target, module: torch.nn.Module, contiguous: bool, has_inputs: bool
) -> torch.nn.Module:
    """A module with the parameters and buffers of `module` whose forward is the entry point.

    The names of parameters and buffers stay those of the user's module, a `forward` is not
    needed there, and a method that calls `self.forward` reaches the user's.
    """
    shell = torch.nn.Module()
    for name in ("_parameters", "_modules", "_non_persistent_buffers_set"):
        shell.__dict__[name] = module.__dict__[name]
    # A dictionary of its own: torch.export watches this one for assignments, and treats them as
    # writes in place, but only those of the root module.
    shell.__dict__["_buffers"] = dict(module._buffers)
    shell.training = module.training

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if contiguous:
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda tensor: tensor.contiguous(), (args, kwargs)
            )
        real = dict(module._buffers)
        module._buffers.update(self._buffers)  # tracing has put fake tensors there
        assignments = Assignments(method, module)
        result = assignments.write_back(target.call(module, *args, **kwargs))
        module._buffers.update(real)
        return result

    def forward_no_input(self: torch.nn.Module, pte_arenas_no_input: torch.Tensor) -> Any:
        return forward(self)

    if has_inputs:
        me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        forward.__signature__ = target.signature.replace(  # type: ignore[attr-defined]
            parameters=[me, *target.signature.parameters.values()]
        )
    body = forward if has_inputs else forward_no_input
    shell.__class__ = type(type(module).__name__, (torch.nn.Module,), {"forward": body})
    return shell


def _fresh(examples: Any) -> Any:
    """Clones every example tensor, so that no two are one and none is a buffer."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), examples)


class _ExportErrors:
    """Turns torch.export's refusals of hidden state into ours; others get the method's name."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ValueError) and "attribute" in str(error) and "assigned" in str(error):
            raise ArenaError(
                f"{self._method}: expected state in registered buffers but found that the method "
                f"assigns tensors to attributes ({error}); register them with register_buffer in "
                f"__init__"
            ) from error
        if isinstance(error, Exception) and "fake tensor" in str(error):
            raise ArenaError(
                f"{self._method}: expected state to change through its buffer but found a write "
                f"that export cannot see, such as one through .data; use the buffer itself "
                f"(self.state.add_(x)), and register_buffer instead of a Parameter"
            ) from error
        if isinstance(error, Exception) and hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"while exporting method {self._method!r}")
