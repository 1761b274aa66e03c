#pragma once

#include <cstddef>
#include <cstdint>

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace executorch::extension::arenas {

/// A dimension or an index that may count from the end.
inline int64_t wrapped(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

/// The start or end of a slice.
inline int64_t clamped(int64_t index, int64_t size) {
  const int64_t at = wrapped(index, size);
  return at < 0 ? 0 : (at > size ? size : at);
}

/// A tensor as rows of `length` blocks along one dimension.
struct Blocks {
  int64_t rows = 1;
  int64_t length;
  size_t block_bytes;

  Blocks(const aten::Tensor& tensor, int64_t dim)
      : length(tensor.size(dim)),
        block_bytes(static_cast<size_t>(tensor.element_size())) {
    for (int64_t before = 0; before < dim; ++before) {
      rows *= tensor.size(before);
    }
    for (int64_t after = dim + 1; after < tensor.dim(); ++after) {
      block_bytes *= static_cast<size_t>(tensor.size(after));
    }
  }
};

}  // namespace executorch::extension::arenas
