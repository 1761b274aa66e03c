// Kernels of scatters whose output may be their first argument: only the
// written part moves then. Registered when this file is linked in.

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

using ::executorch::aten::Tensor;
using ::executorch::runtime::Error;
using ::executorch::runtime::KernelRuntimeContext;

// Gives `out` the sizes and, unless it is the same memory, the elements of
// `self`. Both and `src` must be contiguous and of one dtype.
bool start_from(KernelRuntimeContext& context, const Tensor& self,
                const Tensor& src, Tensor& out) {
  if (self.scalar_type() != src.scalar_type() ||
      self.scalar_type() != out.scalar_type() ||
      !runtime::tensor_is_default_dim_order(self) ||
      !runtime::tensor_is_default_dim_order(src) ||
      runtime::resize_tensor(out, self.sizes()) != Error::Ok) {
    context.fail(Error::InvalidArgument);
    return false;
  }
  if (out.const_data_ptr() != self.const_data_ptr()) {
    std::memcpy(out.mutable_data_ptr(), self.const_data_ptr(), self.nbytes());
  }
  return true;
}

// Writes `count` blocks of each row of `src` at `begin`, `begin + step`, ….
void write_blocks(const Tensor& src, const Blocks& blocks, int64_t begin,
                  int64_t count, int64_t step, Tensor& out) {
  const auto* from = static_cast<const uint8_t*>(src.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  const auto run = step == 1 ? static_cast<size_t>(count) : size_t{1};
  for (int64_t row = 0; row < blocks.rows; ++row) {
    for (int64_t index = 0; index < count; index += static_cast<int64_t>(run)) {
      const auto at =
          static_cast<size_t>(row * blocks.length + begin + index * step);
      std::memcpy(to + at * blocks.block_bytes, from, run * blocks.block_bytes);
      from += run * blocks.block_bytes;
    }
  }
}

Tensor& slice_scatter_out(KernelRuntimeContext& context, const Tensor& self,
                          const Tensor& src, int64_t dim,
                          std::optional<int64_t> start,
                          std::optional<int64_t> end, int64_t step,
                          Tensor& out) {
  dim = wrapped(dim, self.dim());
  ET_KERNEL_CHECK(context, dim >= 0 && dim < self.dim() && step > 0,
                  InvalidArgument, out);
  if (!start_from(context, self, src, out)) {
    return out;
  }
  const Blocks blocks(self, dim);
  const int64_t begin = clamped(start.value_or(0), blocks.length);
  const int64_t stop = clamped(end.value_or(blocks.length), blocks.length);
  const int64_t count = stop > begin ? (stop - begin + step - 1) / step : 0;
  ET_KERNEL_CHECK(
      context,
      static_cast<size_t>(src.nbytes()) ==
          static_cast<size_t>(blocks.rows * count) * blocks.block_bytes,
      InvalidArgument, out);
  if (count > 0) {
    write_blocks(src, blocks, begin, count, step, out);
  }
  return out;
}

// The index tensors of index_put as one shape, the dimensions that they index
// and the blocks behind the last of these.
class Indices {
 public:
  static constexpr int64_t kMaxDims = 16;

  // False where this kernel cannot do it: indices that are not integers, not
  // of one shape up to broadcasting, or not for adjoining dimensions.
  bool read(const Tensor& self,
            executorch::aten::ArrayRef<std::optional<Tensor>> indices) {
    for (size_t dim = 0; dim < indices.size(); ++dim) {
      if (!indices[dim].has_value()) {
        continue;
      }
      if (count_ > 0 && first_ + count_ != static_cast<int64_t>(dim)) {
        return false;
      }
      if (count_ == 0) {
        first_ = static_cast<int64_t>(dim);
      }
      if (count_ == kMaxDims || !add(*indices[dim])) {
        return false;
      }
    }
    return count_ > 0 && first_ + count_ <= self.dim();
  }

  // The flat position, among the indexed dimensions of `self`, that an element
  // of the broadcast indices names; negative if out of range.
  int64_t position(const Tensor& self, int64_t element) const {
    int64_t flat = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t size = self.size(first_ + i);
      const int64_t at = wrapped(value(*tensors_[i], element), size);
      if (at < 0 || at >= size) {
        return -1;
      }
      flat = flat * size + at;
    }
    return flat;
  }

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  int64_t dims() const { return dims_; }
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t elements() const {
    int64_t product = 1;
    for (int64_t dim = 0; dim < dims_; ++dim) {
      product *= sizes_[dim];
    }
    return product;
  }

 private:
  bool add(const Tensor& index) {
    const auto type = index.scalar_type();
    if ((type != executorch::aten::ScalarType::Long &&
         type != executorch::aten::ScalarType::Int) ||
        index.dim() > kMaxDims) {
      return false;
    }
    while (dims_ < index.dim()) {
      for (int64_t dim = dims_; dim > 0; --dim) {
        sizes_[dim] = sizes_[dim - 1];
      }
      sizes_[0] = 1;
      ++dims_;
    }
    for (int64_t dim = 0; dim < index.dim(); ++dim) {
      int64_t& size = sizes_[dims_ - index.dim() + dim];
      if (index.size(dim) != 1 && size != 1 && size != index.size(dim)) {
        return false;
      }
      size = index.size(dim) != 1 ? index.size(dim) : size;
    }
    tensors_[count_++] = &index;
    return true;
  }

  int64_t value(const Tensor& index, int64_t element) const {
    int64_t at = 0;
    int64_t stride = 1;
    for (int64_t back = 0; back < dims_; ++back) {
      const int64_t position = element % sizes_[dims_ - 1 - back];
      element /= sizes_[dims_ - 1 - back];
      if (back < index.dim()) {
        const int64_t size = index.size(index.dim() - 1 - back);
        at += size == 1 ? 0 : position * stride;
        stride *= size;
      }
    }
    return index.scalar_type() == executorch::aten::ScalarType::Long
               ? index.const_data_ptr<int64_t>()[at]
               : index.const_data_ptr<int32_t>()[at];
  }

  const Tensor* tensors_[kMaxDims] = {};
  int64_t sizes_[kMaxDims + 1] = {};
  int64_t first_ = 0;
  int64_t count_ = 0;
  int64_t dims_ = 0;
};

// `values` broadcast to rows x indices x block: how far one step goes.
class Values {
 public:
  bool read(const Tensor& self, const Indices& indices, const Tensor& values) {
    int64_t want[2 * Indices::kMaxDims];
    int64_t dims = 0;
    for (int64_t dim = 0; dim < indices.first(); ++dim) {
      want[dims++] = self.size(dim);
    }
    for (int64_t dim = 0; dim < indices.dims(); ++dim) {
      want[dims++] = indices.size(dim);
    }
    for (int64_t dim = indices.first() + indices.count(); dim < self.dim();
         ++dim) {
      want[dims++] = self.size(dim);
    }
    if (dims > Indices::kMaxDims || values.dim() > dims) {
      return false;
    }
    int64_t stride = 1;
    for (int64_t back = 1; back <= dims; ++back) {
      const int64_t dim = dims - back;
      const int64_t size =
          back <= values.dim() ? values.size(values.dim() - back) : 1;
      if (size != want[dim] && size != 1) {
        return false;
      }
      sizes_[dim] = want[dim];
      strides_[dim] = size == 1 ? 0 : stride;
      stride *= size;
    }
    dims_ = dims;
    return true;
  }

  // The element of `values` at a flat position of the broadcast shape.
  int64_t at(int64_t flat) const {
    int64_t element = 0;
    for (int64_t dim = dims_ - 1; dim >= 0; --dim) {
      element += flat % sizes_[dim] * strides_[dim];
      flat /= sizes_[dim];
    }
    return element;
  }

  // Whether the last `elements` of the broadcast shape lie side by side.
  bool dense(int64_t elements) const {
    int64_t covered = 1;
    for (int64_t dim = dims_ - 1; dim >= 0 && covered < elements; --dim) {
      if (sizes_[dim] != 1 && strides_[dim] != covered) {
        return false;
      }
      covered *= sizes_[dim];
    }
    return covered == elements;
  }

 private:
  int64_t sizes_[Indices::kMaxDims] = {};
  int64_t strides_[Indices::kMaxDims] = {};
  int64_t dims_ = 0;
};

Tensor& index_put_out(KernelRuntimeContext& context, const Tensor& self,
                      executorch::aten::ArrayRef<std::optional<Tensor>> indices,
                      const Tensor& values, bool accumulate, Tensor& out) {
  Indices where;
  Values what;
  ET_KERNEL_CHECK(context,
                  !accumulate && where.read(self, indices) &&
                      what.read(self, where, values),
                  InvalidArgument, out);
  // Every index is looked at before the first element is written.
  const int64_t count = where.elements();
  for (int64_t element = 0; element < count; ++element) {
    ET_KERNEL_CHECK(context, where.position(self, element) >= 0,
                    InvalidArgument, out);
  }
  if (!start_from(context, self, values, out)) {
    return out;
  }
  int64_t rows = 1;
  int64_t indexed = 1;
  int64_t block = 1;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    int64_t& part = dim < where.first()                   ? rows
                    : dim < where.first() + where.count() ? indexed
                                                          : block;
    part *= self.size(dim);
  }
  const auto width = static_cast<size_t>(self.element_size());
  const auto* from = static_cast<const uint8_t*>(values.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  const int64_t run = what.dense(block) ? block : 1;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t element = 0; element < count; ++element) {
      const int64_t target =
          (row * indexed + where.position(self, element)) * block;
      const int64_t source = (row * count + element) * block;
      for (int64_t i = 0; i < block; i += run) {
        std::memcpy(to + static_cast<size_t>(target + i) * width,
                    from + static_cast<size_t>(what.at(source + i)) * width,
                    static_cast<size_t>(run) * width);
      }
    }
  }
  return out;
}

Tensor& scatter_out(KernelRuntimeContext& context, const Tensor& self,
                    int64_t dim, const Tensor& index, const Tensor& src,
                    Tensor& out) {
  dim = wrapped(dim, self.dim());
  ET_KERNEL_CHECK(context,
                  dim >= 0 && dim < self.dim() && index.dim() == self.dim() &&
                      src.dim() == self.dim() &&
                      index.scalar_type() == executorch::aten::ScalarType::Long,
                  InvalidArgument, out);
  if (!start_from(context, self, src, out)) {
    return out;
  }
  const auto* at = index.const_data_ptr<int64_t>();
  const auto* from = static_cast<const uint8_t*>(src.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  const auto width = static_cast<size_t>(self.element_size());
  for (int64_t element = 0; element < index.numel(); ++element) {
    int64_t rest = element;
    int64_t source = 0;
    int64_t target = 0;
    for (int64_t d = index.dim() - 1; d >= 0; --d) {
      const int64_t position = rest % index.size(d);
      rest /= index.size(d);
      const int64_t aim =
          d == dim ? wrapped(at[element], out.size(d)) : position;
      ET_KERNEL_CHECK(context,
                      aim >= 0 && aim < out.size(d) && position < src.size(d),
                      InvalidArgument, out);
      source += position * src.strides()[d];
      target += aim * out.strides()[d];
    }
    std::memcpy(to + static_cast<size_t>(target) * width,
                from + static_cast<size_t>(source) * width, width);
  }
  return out;
}

}  // namespace
}  // namespace executorch::extension::arenas

EXECUTORCH_LIBRARY(pte_arenas, "slice_scatter.out",
                   executorch::extension::arenas::slice_scatter_out);
EXECUTORCH_LIBRARY(pte_arenas, "scatter.out",
                   executorch::extension::arenas::scatter_out);
EXECUTORCH_LIBRARY(pte_arenas, "index_put.out",
                   executorch::extension::arenas::index_put_out);
