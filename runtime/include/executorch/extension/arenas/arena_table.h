#pragma once

#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/portable_type/device.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/// How long the contents of an arena mean something.
enum class Lifetime : uint8_t {
  /// From the creation of the session (or a reset) to its end.
  State = 0,
  /// Not beyond one execution; any method may reuse the bytes.
  Scratch = 1,
};

/// A block of memory that the program declares.
struct ArenaInfo {
  std::string_view name;
  /// In bytes.
  size_t size;
  /// Of the first byte; a power of two.
  size_t alignment;
  Lifetime lifetime;
  /// Where the memory lives.
  runtime::etensor::Device device;
  /// How many named tensors the arena holds.
  size_t num_slots;
};

/// A named tensor inside an arena.
struct SlotInfo {
  /// Fully qualified name of the buffer in the exported module.
  std::string_view name;
  ::executorch::aten::ScalarType scalar_type;
  runtime::Span<const int32_t> sizes;
  /// Dimensions from the outermost in memory to the innermost.
  runtime::Span<const uint8_t> dim_order;
  /// First byte, relative to the start of the arena.
  size_t offset;
  size_t nbytes;
  /// Index of the initial value in the program's first mutable data segment; 0
  /// if the slot starts as zeros.
  uint32_t data_buffer_idx;
};

/// Where the initial value of a slot is stored; it is as long as the slot.
struct InitialValue {
  /// First byte, relative to the start of the file.
  uint64_t file_offset;
  /// Index into the program's segments.
  size_t segment_index;
};

/// An operator that a method calls, such as `aten::add` with `out`.
struct OperatorName {
  std::string_view name;
  /// May be empty.
  std::string_view overload;
};

/// One planned buffer of a method.
struct PlannedBuffer {
  /// As the file has it, in bytes. For bound memory 0 or the arena's size.
  uint64_t size;
  /// Index of the arena that the buffer is, if it is bound to one.
  std::optional<size_t> arena;
  /// Where the buffer must live; of a type that may be unknown unless bound.
  runtime::etensor::Device device;
};

/**
 * What a program file declares about its arenas, checked.
 *
 * A view: owns nothing, allocates nothing and stays valid as long as the bytes
 * it was parsed from. No exceptions, RTTI, threads or files either, so that
 * targets without a heap can use it. Copying it is cheap.
 *
 * Indices given to the accessors must be in range; they are not checked again.
 */
class ET_ARENAS_API ArenaTable final {
 public:
  /// Bytes from the start of a file that `program_size()` needs.
  static constexpr size_t kHeadBytes = 64;

  /**
   * How many bytes from the start of a file hold the program itself, without
   * the segments behind it.
   *
   * @param[in] head The first bytes of the file, at least `kHeadBytes`.
   * @param[in] file_size Size of the whole file.
   * @param[out] finding If not null, filled on failure.
   *
   * @retval Error::InvalidProgram The file is too short or its header damaged.
   */
  static runtime::Result<size_t> program_size(runtime::Span<const uint8_t> head,
                                              uint64_t file_size,
                                              Finding* finding = nullptr);

  /**
   * Checks a program against every rule of docs/checks.md.
   *
   * Takes time in proportion to the size of the program; names that collide in
   * a small filter cost a second look (about 50 ms for 10,000 slots).
   *
   * @param[in] program At least the first `program_size()` bytes of the file,
   *     aligned to `alignof(std::max_align_t)`. Must outlive the table.
   * @param[in] file_size Size of the whole file, segments included.
   * @param[out] finding If not null, filled with the first broken rule, or
   *     cleared if there is none.
   *
   * @retval Error::InvalidArgument The bytes are not aligned.
   * @retval Error::InvalidProgram A rule is broken; see `finding`.
   */
  static runtime::Result<ArenaTable> parse(runtime::Span<const uint8_t> program,
                                           uint64_t file_size,
                                           Finding* finding = nullptr);

  /// How many arenas the program declares; 0 for a program without arenas.
  size_t num_arenas() const;

  ArenaInfo arena(size_t index) const;

  SlotInfo slot(size_t arena, size_t index) const;

  /// Where the initial value of a slot lies; nothing if it starts as zeros.
  std::optional<InitialValue> initial_value(size_t arena, size_t slot) const;

  /// @retval Error::NotFound No arena has this name.
  runtime::Result<size_t> find_arena(std::string_view name) const;

  /// @retval Error::NotFound The arena has no slot of this name.
  runtime::Result<size_t> find_slot(size_t arena, std::string_view name) const;

  size_t num_methods() const;

  std::string_view method_name(size_t method) const;

  /// @retval Error::NotFound No method has this name.
  runtime::Result<size_t> find_method(std::string_view name) const;

  /**
   * Checks what ExecuTorch takes for granted when it loads and runs a method:
   * that inputs, outputs, lists and instructions refer to what the method has,
   * and that constants and the data of delegates are there. See
   * docs/security.md. Whoever loads a method without a `Session` calls it
   * first.
   *
   * @param[in] method Index of the method.
   * @param[out] finding If not null, filled on failure.
   *
   * @retval Error::Ok Nothing is wrong.
   * @retval Error::InvalidProgram Something is; see `finding`.
   */
  runtime::Error check_method(size_t method, Finding* finding = nullptr) const;

  /**
   * Whether a method changes one of its inputs: an instruction of an operator
   * in place, such as `aten::copy_`, has it as its first argument.
   *
   * @param[in] input Index among the method's inputs.
   */
  bool mutates_input(size_t method, size_t input) const;

  /// How many operators a method calls.
  size_t num_operators(size_t method) const;

  OperatorName operator_name(size_t method, size_t index) const;

  /// How many planned buffers a method has; their memory ids count from 1.
  size_t num_planned_buffers(size_t method) const;

  /// @param[in] index The memory id less 1.
  PlannedBuffer planned_buffer(size_t method, size_t index) const;

 private:
  ArenaTable(const void* program, uint64_t segment_base)
      : program_(program), segment_base_(segment_base) {}

  /// Root table of the FlatBuffer.
  const void* program_;
  /// First byte of the segments, relative to the start of the file.
  uint64_t segment_base_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
