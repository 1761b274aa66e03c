"""What a map says about the things in it, as lines of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pte_arenas.layout import ArenaLayout, ArenaSlot, MethodLayout, ProgramLayout
from pte_arenas.sizes import counted, in_bytes
from pte_arenas.timeline import MethodTimeline, TensorLifetime

MOST_LISTED = 16
_WORDS = {"read": "reads", "write": "writes", "read_write": "reads and writes"}


def program_facts(layout: ProgramLayout) -> str:
    """A program in one line."""
    counts = f"{counted(len(layout.methods), 'method')}, {counted(len(layout.arenas), 'arena')}"
    return f"{counts}, {in_bytes(layout.planned_bytes)} planned"


def arena_facts(arena: ArenaLayout) -> list[str]:
    """An arena, without its name."""
    device = f"{arena.device_type}:{arena.device_index}"
    return [
        arena.lifetime,
        in_bytes(arena.size),
        f"aligned to {arena.alignment}",
        "cpu" if device == "cpu:0" else device,
        *([counted(len(arena.slots), "slot")] if arena.lifetime == "state" else []),
    ]


def accesses_of(layout: ProgramLayout, arena: int) -> list[dict[str, list[str]]]:
    """For each slot of an arena, the methods by what they do with it."""
    found: list[dict[str, list[str]]] = [defaultdict(list) for _ in layout.arenas[arena].slots]
    for method in layout.methods:
        for binding in method.bindings:
            for access in binding.accesses if binding.arena == arena else ():
                found[access.slot][_WORDS[access.mode]].append(method.name)
    return found


def access_text(accesses: Mapping[str, Sequence[str]]) -> str:
    """Who does what with a slot as the file declares it, in one line."""
    if not accesses:
        return "no method"
    return "; ".join(
        f"{', '.join(names)} {word_of(names, word)}" for word, names in accesses.items()
    )


def word_of(names: Sequence[str], word: str) -> str:
    """The verb for one method or several."""
    return word if len(names) == 1 else word.replace("reads", "read").replace("writes", "write")


def slot_facts(
    arena: ArenaLayout, slot: ArenaSlot, accesses: Mapping[str, Sequence[str]]
) -> list[str]:
    """All about a slot; its name comes first."""
    start = "starts with values of the file" if slot.data_buffer_idx else "starts as zeros"
    return [
        slot.fqn,
        f"slot of {arena.name}, {slot.dtype} {list(slot.sizes)}, {in_bytes(slot.nbytes)}",
        f"bytes [{slot.offset:,}, {slot.end:,})",
        start,
        f"declared: {access_text(accesses)}",
    ]


def tensor_facts(
    tensor: TensorLifetime, method: MethodTimeline, memory: str, sharers: Sequence[TensorLifetime]
) -> list[str]:
    """All about a planned tensor; what it is called comes first."""
    end = tensor.offset + tensor.nbytes
    kind = f"{tensor.role} of {method.name}, value {tensor.value}"
    facts = [
        method.describe(tensor),
        f"{kind}, {tensor.dtype} {list(tensor.sizes)}, {in_bytes(tensor.nbytes)}",
        f"bytes [{tensor.offset:,}, {end:,}) of {memory}",
        lifetime_text(tensor, method),
    ]
    if tensor.uses:
        facts.append(f"used at {listed_numbers(tensor.uses)}")
    if sharers:
        values = [other.value for other in sharers]
        facts.append(f"on the same bytes at the same time: value {listed_numbers(values)}")
    return facts


def lifetime_text(tensor: TensorLifetime, method: MethodTimeline) -> str:
    """From which instruction to which a tensor lives."""
    if tensor.begin >= tensor.end:
        return "never used"
    if not method.instructions:
        return "lives throughout"
    first, last = method.label(tensor.begin), method.label(tensor.end - 1)
    return f"lives from {first} to {last}" if first != last else f"lives at {first}"


def listed_numbers(numbers: Sequence[int]) -> str:
    """Some numbers, and how many more there are."""
    more = len(numbers) - MOST_LISTED
    shown = ", ".join(f"{number}" for number in numbers[:MOST_LISTED])
    return shown + (f" and {more:,} more" if more > 0 else "")


def method_facts(layout: ProgramLayout, index: int, times: MethodTimeline) -> list[str]:
    """A method, without its name."""
    method = layout.methods[index]
    facts = [
        counted(len(times.instructions), "instruction"),
        f"{in_bytes(method.planned_bytes)} of its own",
    ]
    if method.bindings:
        facts.append(f"{layout.unshared_by_method[index]:,} without arenas")
    return facts


def memory_name(layout: ProgramLayout, method: MethodLayout, memory_id: int) -> str:
    """What a method's memory id is: its own memory or an arena."""
    for binding in method.bindings:
        if binding.memory_id == memory_id:
            return f"arena {layout.arenas[binding.arena].name}"
    return f"memory id {memory_id}"
