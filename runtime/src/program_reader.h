#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

/**
 * @file
 * Plain accessors to the tables of a verified program, without FlatBuffers
 * types. Each reader is a pointer into the program's bytes. Absent texts have a
 * null `data()`, absent vectors are empty and indices are not checked.
 */

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// A table in the file.
class TableReader {
 public:
  explicit TableReader(const void* table) : table_(table) {}

  /// False if the table is absent.
  bool present() const { return table_ != nullptr; }

  const void* table() const { return table_; }

 protected:
  const void* table_;
};

class SlotReader : public TableReader {
 public:
  using TableReader::TableReader;
  std::string_view name() const;
  int scalar_type() const;
  runtime::Span<const int32_t> sizes() const;
  runtime::Span<const uint8_t> dim_order() const;
  uint64_t offset() const;
  uint64_t nbytes() const;
  uint32_t data_buffer_idx() const;
};

class ArenaReader : public TableReader {
 public:
  using TableReader::TableReader;
  std::string_view name() const;
  uint64_t size() const;
  uint32_t alignment() const;
  int lifetime() const;
  int device_type() const;
  int device_index() const;
  size_t num_slots() const;
  SlotReader slot(size_t index) const;
};

class ArenasReader : public TableReader {
 public:
  using TableReader::TableReader;
  uint32_t format() const;
  size_t num_features() const;
  std::string_view feature(size_t index) const;
  size_t num_arenas() const;
  ArenaReader arena(size_t index) const;
};

class AccessReader : public TableReader {
 public:
  using TableReader::TableReader;
  uint32_t slot() const;
  int mode() const;
};

class BindingReader : public TableReader {
 public:
  using TableReader::TableReader;
  uint32_t memory_id() const;
  uint32_t arena() const;
  size_t num_accesses() const;
  AccessReader access(size_t index) const;
};

/// A tensor that the planner gave memory; absent for every other value.
class PlannedTensorReader : public TableReader {
 public:
  using TableReader::TableReader;
  int scalar_type() const;
  runtime::Span<const int32_t> sizes() const;
  uint32_t data_buffer_idx() const;
  uint32_t memory_id() const;
  uint64_t memory_offset() const;
};

class PlanReader : public TableReader {
 public:
  using TableReader::TableReader;
  std::string_view name() const;
  size_t num_bindings() const;
  BindingReader binding(size_t index) const;
  /// Entries of non_const_buffer_sizes; entry 0 is reserved.
  size_t num_buffer_sizes() const;
  int64_t buffer_size(size_t memory_id) const;
  /// Type and index of the device of a memory id; CPU 0 where absent.
  void buffer_device(size_t memory_id, int* type, int* index) const;
  size_t num_values() const;
  PlannedTensorReader planned_tensor(size_t value) const;
  size_t num_operators() const;
  OperatorName operator_name(size_t index) const;
  size_t num_inputs() const;
  /// The value that an input is.
  int32_t input(size_t index) const;
  size_t num_outputs() const;
  /// The value that an output is.
  int32_t output(size_t index) const;
  /// Whether an instruction mutates a value: calls an operator whose name ends
  /// as those in place do (`aten::copy_`) with it as the first argument.
  bool is_mutated(int32_t value) const;
};

/// Offsets relative to the first byte of the segments.
class SegmentReader : public TableReader {
 public:
  using TableReader::TableReader;
  uint64_t offset() const;
  uint64_t size() const;
};

/// The first mutable data segment, which holds initial values.
struct InitialDataReader {
  /// False if the program has none.
  bool present = false;
  size_t segment_index = 0;
  /// First byte, relative to the first byte of the segments.
  uint64_t segment_offset = 0;
  uint64_t segment_size = 0;
  /// Where each initial value begins in the segment; entry 0 is reserved.
  runtime::Span<const uint64_t> offsets;
};

class ProgramReader : public TableReader {
 public:
  using TableReader::TableReader;

  /**
   * Runs FlatBuffers' verifier, with limits that let large programs pass.
   *
   * @param[in] program The bytes of the FlatBuffer, no more.
   *
   * @returns A reader of the root table, absent if the data is damaged.
   */
  static ProgramReader verify(runtime::Span<const uint8_t> program);

  size_t num_segments() const;
  SegmentReader segment(size_t index) const;
  ArenasReader arenas() const;
  size_t num_plans() const;
  PlanReader plan(size_t index) const;
  InitialDataReader initial_data() const;
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
