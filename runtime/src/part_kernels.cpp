// Kernels of parts whose output may be that part of their first argument: it
// only gets its sizes then. Registered when this file is linked in.

#include <cstdint>
#include <cstring>
#include <optional>

#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>

#include "dimensions.h"

namespace executorch::extension::arenas {
namespace {

using ::executorch::aten::ArrayRef;
using ::executorch::aten::SizesType;
using ::executorch::aten::Tensor;
using ::executorch::runtime::Error;
using ::executorch::runtime::KernelRuntimeContext;

// Sizes of a tensor, made one by one.
class Sizes {
 public:
  void add(int64_t size) { sizes_[dims_++] = static_cast<SizesType>(size); }

  ArrayRef<SizesType> all() const { return {sizes_, dims_}; }

 private:
  SizesType sizes_[runtime::kTensorDimensionLimit];
  size_t dims_ = 0;
};

// Gives `out` sizes and, unless they are there already, the bytes of `self`
// from one on.
void take(KernelRuntimeContext& context, const Tensor& self, size_t begin,
          const Sizes& sizes, Tensor& out) {
  if (self.scalar_type() != out.scalar_type() ||
      !runtime::tensor_is_default_dim_order(self) ||
      !runtime::tensor_is_default_dim_order(out) ||
      runtime::resize_tensor(out, sizes.all()) != Error::Ok ||
      begin + out.nbytes() > self.nbytes()) {
    context.fail(Error::InvalidArgument);
    return;
  }
  const auto* whole = static_cast<const uint8_t*>(self.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  if (to == whole + begin || out.nbytes() == 0) {
    return;
  }
  if (to < whole + self.nbytes() && to + out.nbytes() > whole) {
    context.fail(Error::InvalidArgument);  // it would write over `self`
    return;
  }
  std::memcpy(to, whole + begin, out.nbytes());
}

// Takes `count` blocks along a dimension, where they are one run of bytes.
void take_blocks(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                 int64_t begin, int64_t count, bool keep_dim, Tensor& out) {
  const Blocks blocks(self, dim);
  if (blocks.rows != 1) {
    context.fail(Error::InvalidArgument);
    return;
  }
  Sizes sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim || keep_dim) {
      sizes.add(d == dim ? count : self.size(d));
    }
  }
  take(context, self, static_cast<size_t>(begin) * blocks.block_bytes, sizes,
       out);
}

Tensor& slice_copy_out(KernelRuntimeContext& context, const Tensor& self,
                       int64_t dim, std::optional<int64_t> start,
                       std::optional<int64_t> end, int64_t step, Tensor& out) {
  dim = wrapped(dim, self.dim());
  ET_KERNEL_CHECK(context, dim >= 0 && dim < self.dim() && step == 1,
                  InvalidArgument, out);
  const int64_t size = self.size(dim);
  const int64_t begin = clamped(start.value_or(0), size);
  const int64_t stop = clamped(end.value_or(size), size);
  const int64_t count = stop > begin ? stop - begin : 0;
  take_blocks(context, self, dim, begin, count, true, out);
  return out;
}

Tensor& select_copy_out(KernelRuntimeContext& context, const Tensor& self,
                        int64_t dim, int64_t index, Tensor& out) {
  dim = wrapped(dim, self.dim());
  ET_KERNEL_CHECK(context, dim >= 0 && dim < self.dim(), InvalidArgument, out);
  index = wrapped(index, self.size(dim));
  ET_KERNEL_CHECK(context, index >= 0 && index < self.size(dim),
                  InvalidArgument, out);
  take_blocks(context, self, dim, index, 1, false, out);
  return out;
}

Tensor& unsqueeze_copy_out(KernelRuntimeContext& context, const Tensor& self,
                           int64_t dim, Tensor& out) {
  dim = wrapped(dim, self.dim() + 1);
  ET_KERNEL_CHECK(
      context,
      dim >= 0 && dim <= self.dim() &&
          self.dim() < static_cast<ssize_t>(runtime::kTensorDimensionLimit),
      InvalidArgument, out);
  Sizes sizes;
  for (int64_t d = 0; d <= self.dim(); ++d) {
    if (d == dim) {
      sizes.add(1);
    }
    if (d < self.dim()) {
      sizes.add(self.size(d));
    }
  }
  take(context, self, 0, sizes, out);
  return out;
}

Tensor& squeeze_copy_out(KernelRuntimeContext& context, const Tensor& self,
                         ArrayRef<int64_t> dims, Tensor& out) {
  Sizes sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    bool named = false;
    for (const int64_t dim : dims) {
      named = named || wrapped(dim, self.dim()) == d;
    }
    if (!named || self.size(d) != 1) {
      sizes.add(self.size(d));
    }
  }
  take(context, self, 0, sizes, out);
  return out;
}

}  // namespace
}  // namespace executorch::extension::arenas

EXECUTORCH_LIBRARY(pte_arenas, "slice_copy.out",
                   executorch::extension::arenas::slice_copy_out);
EXECUTORCH_LIBRARY(pte_arenas, "select_copy.out",
                   executorch::extension::arenas::select_copy_out);
EXECUTORCH_LIBRARY(pte_arenas, "unsqueeze_copy.out",
                   executorch::extension::arenas::unsqueeze_copy_out);
EXECUTORCH_LIBRARY(pte_arenas, "squeeze_copy.out",
                   executorch::extension::arenas::squeeze_copy_out);
