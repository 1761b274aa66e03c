#pragma once

#include <executorch/runtime/core/span.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace pte_arenas {

/**
 * The memory of a Python object, kept alive and where it is.
 *
 * May be let go in any thread, with or without the GIL.
 */
class BorrowedMemory final {
 public:
  /**
   * @param[in] arena Name of the arena that it is for.
   * @param[in] object A CPU tensor of torch or a writable buffer, contiguous.
   *
   * @throws TypeError, ValueError
   */
  BorrowedMemory(std::string arena, nanobind::handle object);
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;
  ~BorrowedMemory();

  const std::string& arena() const { return arena_; }

  executorch::runtime::Span<uint8_t> span() const { return span_; }

 private:
  void borrow_tensor(nanobind::handle tensor);
  void borrow_buffer(nanobind::handle object);

  std::string arena_;
  executorch::runtime::Span<uint8_t> span_;
  /// Holds the object. Of a tensor only `obj` is set.
  Py_buffer buffer_{};
};

}  // namespace pte_arenas
