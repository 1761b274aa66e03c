#pragma once

#include <pte_arenas/wire/program_generated.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pte_arenas {
namespace test {

/// The bytes of a file, aligned as a parser wants them.
class FileBytes final {
 public:
  explicit FileBytes(const std::vector<uint8_t>& bytes)
      : memory_(bytes.size() / sizeof(std::max_align_t) + 1),
        size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), data());
  }

  uint8_t* data() { return reinterpret_cast<uint8_t*>(memory_.data()); }
  size_t size() const { return size_; }

 private:
  std::vector<std::max_align_t> memory_;
  size_t size_;
};

/// What the two methods of `counter_program()` are given.
struct CounterOptions {
  /// What the state starts from; all zeros have no initial value in the file.
  std::vector<float> initial = {5.0F, 6.0F};
  /// Whether bound memory ids have size 0, so that other runtimes refuse them.
  bool require_arenas = true;
  /// Whether the program has arenas at all, or private memory per method.
  bool has_arenas = true;
};

/**
 * A program with state `n` of two floats in arena `state`, first of two slots;
 * the second, `m`, is three floats that no method touches.
 *
 * - `bump(x)` adds `x` to `n` and returns `n` itself.
 * - `get()` returns `n` itself.
 */
wire::ProgramT counter_program(const CounterOptions& options = {});

/// Writes the file: the program behind an extended header, then the segment
/// that holds the initial values of `counter_program()`.
FileBytes file_of(const wire::ProgramT& program,
                  const CounterOptions& options = {});

}  // namespace test
}  // namespace pte_arenas
