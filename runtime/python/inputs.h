#pragma once

#include <executorch/runtime/core/error.h>
#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "signature.h"
#include "torch_exchange.h"

namespace pte_arenas {

/**
 * The inputs of one call, checked against the signature.
 *
 * Made and destroyed with the GIL held; `set()` needs no GIL. Keeps the Python
 * objects alive, because ExecuTorch may point into their memory until the
 * execution ends.
 */
class Inputs final {
 public:
  /**
   * @param[in] values A Python sequence. Tensors whose memory is laid out as
   *     the method wants it are not copied here.
   *
   * Throws ValueError or TypeError that names the method, the input, what was
   * expected and what was found.
   */
  Inputs(const Signature& signature, nanobind::handle values);

  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  /// Sets every input of the loaded method.
  executorch::runtime::Error set(Method& method) const;

  /// Changes the caller's tensor, as eager code in place would. With the GIL.
  void write_back(size_t index, nanobind::handle elements) const;

 private:
  static constexpr size_t kMaxRank = 16;
  static constexpr size_t kInlineCount = 4;

  struct Tensor {
    void* data;
    std::array<int32_t, kMaxRank> sizes;
  };

  void take(size_t index, nanobind::handle value);
  void take_tensor(size_t index, nanobind::handle value);
  void check_shape(size_t index, nanobind::handle value,
                   const dlpack::Tensor& tensor) const;
  void check_writable(size_t index, nanobind::handle value,
                      const dlpack::Tensor& tensor) const;
  [[noreturn]] void refuse(size_t index, nanobind::handle value) const;
  Tensor& tensor(size_t index) { return more_ ? more_[index] : inline_[index]; }
  const Tensor& tensor(size_t index) const {
    return more_ ? more_[index] : inline_[index];
  }

  const Signature& signature_;
  nanobind::tuple values_;
  /// Tensors in the method's layout where the caller's had another.
  std::vector<nanobind::object> copies_;
  std::array<Tensor, kInlineCount> inline_;
  std::unique_ptr<Tensor[]> more_;
};

}  // namespace pte_arenas
