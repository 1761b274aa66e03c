#pragma once

#include <executorch/extension/arenas/namespace.h>

#include <cstddef>
#include <cstdint>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// An element type that a program file can name.
struct ElementType {
  /// As torch spells it, such as `float32`; null for an unknown type.
  const char* name;
  /// Size of one element in bytes; 0 for an unknown type.
  size_t width;
};

/**
 * Looks up an element type by its value of `ScalarType`.
 *
 * The table is schema/scalar_type.fbs of ExecuTorch 1.5.1, as in
 * src/pte_arenas/dtypes.py. The complex types and bits1x8 to bits8 exist in the
 * runtime but not in the schema.
 */
ElementType element_type(int code);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
