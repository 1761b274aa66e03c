#include <executorch/extension/arenas/arena_pool.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::DeviceName;
using internal::Name;
using internal::refuse;
using internal::write_path;
using runtime::Error;
using runtime::Result;
using runtime::Span;

namespace {

/// The same answer for every fault of the caller's.
template <typename... Parts>
Error refuse_source(Finding* finding, size_t source, const char* field,
                    Parts... parts) {
  write_path(finding, "borrowed[", uint64_t{source}, field);
  (void)refuse(finding, parts...);
  return Error::InvalidArgument;
}

DeviceName name_of(runtime::etensor::Device device) {
  return {static_cast<int>(device.type()), static_cast<int>(device.index())};
}

/// The largest power of two that the address is a multiple of.
uint64_t alignment_of(const uint8_t* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return value & -value;
}

bool overlap(Span<uint8_t> one, Span<uint8_t> other) {
  const std::less<const uint8_t*> before;
  return before(one.begin(), other.end()) && before(other.begin(), one.end());
}

/// One source by itself.
Error check_source(const ArenaInfo& arena, const BorrowedArena& source,
                   size_t index, Finding* finding) {
  const Span<uint8_t> memory = source.memory;
  if (memory.data() == nullptr) {
    return refuse_source(finding, index, "].memory",
                         "expected memory for arena ", Name{arena.name},
                         " but found null");
  }
  if (memory.size() < arena.size) {
    return refuse_source(finding, index, "].memory", "expected at least ",
                         uint64_t{arena.size}, " bytes for arena ",
                         Name{arena.name}, " but found ",
                         uint64_t{memory.size()});
  }
  if (alignment_of(memory.data()) < arena.alignment) {
    return refuse_source(
        finding, index, "].memory", "expected an address aligned to ",
        uint64_t{arena.alignment}, " bytes for arena ", Name{arena.name},
        " but found one aligned to ", alignment_of(memory.data()));
  }
  return Error::Ok;
}

/**
 * Finds the arena of each source and checks them against it and each other.
 *
 * @param[out] source_of For each arena, the source that names it or null.
 */
Error check_sources(const ArenaTable& table, const ArenaSources& sources,
                    std::vector<const BorrowedArena*>* source_of,
                    Finding* finding) {
  const Span<const BorrowedArena> borrowed = sources.borrowed;
  for (size_t i = 0; i < borrowed.size(); ++i) {
    const BorrowedArena& source = borrowed[i];
    const Result<size_t> a = table.find_arena(source.arena);
    if (!a.ok()) {
      return refuse_source(finding, i, "].arena",
                           "expected the name of an arena but found ",
                           Name{source.arena});
    }
    const ArenaInfo arena = table.arena(*a);
    if ((*source_of)[*a] != nullptr) {
      return refuse_source(finding, i, "].arena",
                           "expected an arena borrowed once but found ",
                           Name{arena.name}, " again");
    }
    if (sources.scratch_from != nullptr &&
        arena.lifetime == Lifetime::Scratch) {
      return refuse_source(finding, i, "].arena",
                           "expected one source of memory for scratch arena ",
                           Name{arena.name},
                           " but found borrowed memory and another session's");
    }
    ET_CHECK_OK_OR_RETURN_ERROR(check_source(arena, source, i, finding));
    for (size_t j = 0; j < i; ++j) {
      if (overlap(source.memory, borrowed[j].memory)) {
        return refuse_source(finding, i, "].memory",
                             "expected bytes apart from those for arena ",
                             Name{borrowed[j].arena}, " but found an overlap");
      }
    }
    (*source_of)[*a] = &source;
  }
  return Error::Ok;
}

/// Says why there is no block for an arena.
Error refuse_block(const ArenaTable& table, size_t a, Error error,
                   Finding* finding) {
  const ArenaInfo arena = table.arena(a);
  if (error == Error::NotSupported) {
    write_path(finding, "arenas[", uint64_t{a}, "].device_type");
    (void)refuse(finding, "expected a device allocator for arena ",
                 Name{arena.name}, " on ", name_of(arena.device),
                 " but found none: link the backend that registers one");
    return error;
  }
  write_path(finding, "arenas[", uint64_t{a}, "].size");
  if (!arena.device.is_cpu()) {
    (void)refuse(finding, "expected memory on ", name_of(arena.device), " for ",
                 uint64_t{arena.size}, " bytes of arena ", Name{arena.name},
                 " but found ", runtime::to_string(error));
    return error;
  }
  (void)refuse(finding, "expected memory for ", uint64_t{arena.size},
               " bytes of arena ", Name{arena.name}, " but found none");
  return Error::MemoryAllocationFailed;
}

}  // namespace

ArenaPool::ArenaPool(Blocks blocks, std::vector<bool> kept)
    : blocks_(std::move(blocks)), kept_(std::move(kept)) {
  for (const auto& block : blocks_) {
    spans_.push_back(block->span());
  }
}

Result<ArenaPool> ArenaPool::create(const ArenaTable& table,
                                    const ArenaSources& sources,
                                    Finding* finding) {
  const size_t count = table.num_arenas();
  std::vector<const BorrowedArena*> source_of(count, nullptr);
  const Error error = check_sources(table, sources, &source_of, finding);
  if (error != Error::Ok) {
    return error;
  }
  Blocks blocks(count);
  std::vector<bool> kept(count, false);
  for (size_t a = 0; a < count; ++a) {
    const ArenaInfo arena = table.arena(a);
    if (sources.scratch_from != nullptr &&
        arena.lifetime == Lifetime::Scratch) {
      blocks[a] = sources.scratch_from->blocks_[a];
      continue;
    }
    const BorrowedArena* const source = source_of[a];
    Result<MemoryBlock> block =
        source != nullptr
            ? MemoryBlock::borrow({source->memory.data(), arena.size},
                                  arena.device)
            : MemoryBlock::allocate(arena.size, arena.alignment, arena.device);
    if (!block.ok()) {
      return refuse_block(table, a, block.error(), finding);
    }
    blocks[a] = std::make_shared<MemoryBlock>(std::move(*block));
    kept[a] = source != nullptr && source->keep;
  }
  for (size_t a = 0; a < count; ++a) {
    const ArenaInfo arena = table.arena(a);
    if (source_of[a] != nullptr && !kept[a] &&
        arena.lifetime == Lifetime::State) {
      const Error zeroed = blocks[a]->zero(0, arena.size);
      if (zeroed != Error::Ok) {
        return refuse_block(table, a, zeroed, finding);
      }
    }
  }
  return ArenaPool(std::move(blocks), std::move(kept));
}

bool ArenaPool::contains(const void* address) const {
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
    return block->contains(address);
  });
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
