#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <pte_arenas/wire/program_generated.h>

#include <cstddef>
#include <cstdint>

/**
 * @file
 * The generated FlatBuffers code, for program_reader.cpp, check_method.cpp and
 * check_instructions.cpp alone.
 */

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

namespace wire = ::pte_arenas::wire;

/// How many elements a vector has that may be absent.
template <typename Vector>
size_t size_of(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}

inline bool is_below(int64_t index, size_t count) {
  return index >= 0 && static_cast<uint64_t>(index) < count;
}

/// What a value of a plan is; the index is one that it has.
inline wire::KernelTypes type_of(const wire::ExecutionPlan& plan,
                                 int64_t value) {
  return plan.values()
      ->Get(static_cast<flatbuffers::uoffset_t>(value))
      ->val_type();
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
