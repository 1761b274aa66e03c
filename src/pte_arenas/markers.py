"""Two identity operators that mark where a graph reads and writes state.

Between a buffer and its readers, and between a new value and the buffer that takes it, they are
opaque to partitioners, constant folding and the removal of copies: no delegate takes live state for
a constant, and each buffer's new value is a node of its own. They exist from `export` to
`to_executorch`, which takes them out. `shared` says that an arena holds the buffer.
"""

from __future__ import annotations

from typing import Any

import torch

_LIBRARY: Any = torch.library.Library("pte_arenas", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("read(Tensor state, bool shared=False) -> Tensor")
_LIBRARY.define("write(Tensor value, bool shared=False) -> Tensor")


def _identity(tensor: torch.Tensor, shared: bool = False) -> torch.Tensor:
    return tensor.clone()


for _name in ("read", "write"):
    _LIBRARY.impl(_name, _identity, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pte_arenas::{_name}", _identity, lib=_LIBRARY)

READ = torch.ops.pte_arenas.read.default
WRITE = torch.ops.pte_arenas.write.default
