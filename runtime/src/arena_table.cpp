#include <executorch/extension/arenas/arena_table.h>

#include <cstddef>

#include "checks.h"
#include "message.h"
#include "program_reader.h"
#include "structure.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::ArenaReader;
using internal::PlanReader;
using internal::ProgramHeader;
using internal::ProgramReader;
using internal::SlotReader;
using runtime::Error;
using runtime::Result;
using runtime::Span;

namespace internal {

Error check_program(const ProgramReader& program, uint64_t size_max,
                    Finding* finding) {
  const ArenasReader arenas = program.arenas();
  if (!arenas.present()) {
    for (size_t m = 0; m < program.num_plans(); ++m) {
      const size_t count = program.plan(m).num_bindings();
      if (count != 0) {
        write_path(finding, "execution_plan[", uint64_t{m}, "].arena_bindings");
        return refuse(
            finding,
            "expected no bindings in a program without arenas but found ",
            uint64_t{count});
      }
    }
    return Error::Ok;
  }
  if (arenas.format() != 1) {
    write_path(finding, "program_arenas.format");
    return refuse(finding, "expected 1 but found ", arenas.format());
  }
  if (arenas.num_features() != 0) {  // version 1 knows none
    write_path(finding, "program_arenas.required_features[0]");
    return refuse(finding,
                  "expected a feature that this reader knows but found ",
                  Name{arenas.feature(0)});
  }
  Error error = check_arenas(program, size_max, finding);
  for (size_t m = 0; error == Error::Ok && m < program.num_plans(); ++m) {
    error = check_plan(program, m, finding);
  }
  return error;
}

}  // namespace internal

namespace {

runtime::etensor::Device device_of(int type, int index) {
  return {static_cast<runtime::etensor::DeviceType>(type),
          static_cast<runtime::etensor::DeviceIndex>(index)};
}

}  // namespace

Result<size_t> ArenaTable::program_size(Span<const uint8_t> head,
                                        uint64_t file_size, Finding* finding) {
  ProgramHeader header;
  if (!internal::read_header(head, file_size, &header) ||
      header.program_size > SIZE_MAX) {
    return internal::refuse_structure(finding);
  }
  return static_cast<size_t>(header.program_size);
}

Result<ArenaTable> ArenaTable::parse(Span<const uint8_t> program,
                                     uint64_t file_size, Finding* finding) {
  if (reinterpret_cast<uintptr_t>(program.data()) % alignof(std::max_align_t) !=
      0) {
    return Error::InvalidArgument;
  }
  ProgramHeader header;
  if (!internal::read_header(program, file_size, &header)) {
    return internal::refuse_structure(finding);
  }
  const ProgramReader reader =
      internal::verify_structure(program, header, file_size);
  if (!reader.present()) {
    return internal::refuse_structure(finding);
  }
  const Error error = internal::check_program(reader, SIZE_MAX, finding);
  if (error != Error::Ok) {
    return error;
  }
  if (finding != nullptr) {  // the checks wrote paths ahead of their verdicts
    *finding = Finding();
  }
  return ArenaTable(reader.table(), header.segment_base);
}

size_t ArenaTable::num_arenas() const {
  const auto arenas = ProgramReader(program_).arenas();
  return arenas.present() ? arenas.num_arenas() : 0;
}

ArenaInfo ArenaTable::arena(size_t index) const {
  const ArenaReader arena = ProgramReader(program_).arenas().arena(index);
  return {arena.name(),
          static_cast<size_t>(arena.size()),
          arena.alignment(),
          static_cast<Lifetime>(arena.lifetime()),
          device_of(arena.device_type(), arena.device_index()),
          arena.num_slots()};
}

SlotInfo ArenaTable::slot(size_t arena, size_t index) const {
  const SlotReader slot =
      ProgramReader(program_).arenas().arena(arena).slot(index);
  return {slot.name(),
          static_cast<executorch::aten::ScalarType>(slot.scalar_type()),
          slot.sizes(),
          slot.dim_order(),
          static_cast<size_t>(slot.offset()),
          static_cast<size_t>(slot.nbytes()),
          slot.data_buffer_idx()};
}

std::optional<InitialValue> ArenaTable::initial_value(size_t arena,
                                                      size_t slot) const {
  const ProgramReader program(program_);
  const uint32_t index =
      program.arenas().arena(arena).slot(slot).data_buffer_idx();
  if (index == 0) {
    return std::nullopt;
  }
  const internal::InitialDataReader data = program.initial_data();
  return InitialValue{segment_base_ + data.segment_offset + data.offsets[index],
                      data.segment_index};
}

Result<size_t> ArenaTable::find_arena(std::string_view name) const {
  for (size_t a = 0; a < num_arenas(); ++a) {
    if (ProgramReader(program_).arenas().arena(a).name() == name) {
      return a;
    }
  }
  return Error::NotFound;
}

Result<size_t> ArenaTable::find_slot(size_t arena,
                                     std::string_view name) const {
  const ArenaReader reader = ProgramReader(program_).arenas().arena(arena);
  for (size_t s = 0; s < reader.num_slots(); ++s) {
    if (reader.slot(s).name() == name) {
      return s;
    }
  }
  return Error::NotFound;
}

size_t ArenaTable::num_methods() const {
  return ProgramReader(program_).num_plans();
}

std::string_view ArenaTable::method_name(size_t method) const {
  return ProgramReader(program_).plan(method).name();
}

Result<size_t> ArenaTable::find_method(std::string_view name) const {
  for (size_t m = 0; m < num_methods(); ++m) {
    if (method_name(m) == name) {
      return m;
    }
  }
  return Error::NotFound;
}

Error ArenaTable::check_method(size_t method, Finding* finding) const {
  return internal::check_method(ProgramReader(program_), method, finding);
}

bool ArenaTable::mutates_input(size_t method, size_t input) const {
  const PlanReader plan = ProgramReader(program_).plan(method);
  return input < plan.num_inputs() && plan.is_mutated(plan.input(input));
}

size_t ArenaTable::num_operators(size_t method) const {
  return ProgramReader(program_).plan(method).num_operators();
}

OperatorName ArenaTable::operator_name(size_t method, size_t index) const {
  return ProgramReader(program_).plan(method).operator_name(index);
}

size_t ArenaTable::num_planned_buffers(size_t method) const {
  const size_t entries =
      ProgramReader(program_).plan(method).num_buffer_sizes();
  return entries == 0 ? 0 : entries - 1;  // entry 0 is reserved
}

PlannedBuffer ArenaTable::planned_buffer(size_t method, size_t index) const {
  const PlanReader plan = ProgramReader(program_).plan(method);
  const size_t memory_id = index + 1;
  int type = 0;
  int device = 0;
  plan.buffer_device(memory_id, &type, &device);
  PlannedBuffer buffer{static_cast<uint64_t>(plan.buffer_size(memory_id)),
                       std::nullopt, device_of(type, device)};
  for (size_t b = 0; b < plan.num_bindings(); ++b) {
    if (plan.binding(b).memory_id() == memory_id) {
      buffer.arena = plan.binding(b).arena();
    }
  }
  return buffer;
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
