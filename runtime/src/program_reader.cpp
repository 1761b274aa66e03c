#include "program_reader.h"

#include "wire.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

template <typename T>
runtime::Span<const T> span_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr
             ? runtime::Span<const T>()
             : runtime::Span<const T>(
                   reinterpret_cast<const T*>(vector->Data()), vector->size());
}

std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view()
                         : std::string_view(text->c_str(), text->size());
}

template <typename Table>
const Table* as(const void* table) {
  return static_cast<const Table*>(table);
}

/// FlatBuffers' verifier looks at the alignment of a vector's length only.
template <typename T>
bool is_aligned(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ||
         reinterpret_cast<uintptr_t>(vector->Data()) % sizeof(T) == 0;
}

bool are_aligned(const wire::ExecutionPlan& plan) {
  if (!is_aligned(plan.non_const_buffer_sizes())) {
    return false;
  }
  for (size_t v = 0; v < size_of(plan.values()); ++v) {
    const wire::IntList* list = plan.values()->Get(v)->val_as_IntList();
    if (list != nullptr && !is_aligned(list->items())) {
      return false;
    }
  }
  return true;
}

/// Vectors of 64-bit numbers, as far as they are read here.
bool are_aligned(const wire::Program& program) {
  for (size_t m = 0; m < size_of(program.execution_plan()); ++m) {
    if (!are_aligned(*program.execution_plan()->Get(m))) {
      return false;
    }
  }
  for (size_t i = 0; i < size_of(program.mutable_data_segments()); ++i) {
    if (!is_aligned(program.mutable_data_segments()->Get(i)->offsets())) {
      return false;
    }
  }
  return program.constant_segment() == nullptr ||
         is_aligned(program.constant_segment()->offsets());
}

bool is_in_place(std::string_view operator_name) {
  const size_t size = operator_name.size();
  return size > 1 && operator_name[size - 1] == '_' &&
         operator_name[size - 2] != '_';  // unlike aten::__and__
}

/// No rule of docs/checks.md covers instructions, so indices may be wrong here.
bool mutates(const wire::ExecutionPlan& plan,
             const wire::Instruction& instruction, int32_t value) {
  const wire::KernelCall* call = instruction.instr_args_as_KernelCall();
  if (call == nullptr || size_of(call->args()) == 0 ||
      call->args()->Get(0) != value ||
      !is_below(call->op_index(), size_of(plan.operators()))) {
    return false;
  }
  return is_in_place(
      text_of(plan.operators()
                  ->Get(static_cast<flatbuffers::uoffset_t>(call->op_index()))
                  ->name()));
}

}  // namespace

ProgramReader ProgramReader::verify(runtime::Span<const uint8_t> program) {
  if (program.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return ProgramReader(nullptr);
  }
  flatbuffers::Verifier::Options options;
  // A table takes at least four bytes and an honest file refers to each once.
  // So a large program passes, and a file whose vectors share their elements
  // many times over cannot take more than linear time.
  options.max_tables = static_cast<flatbuffers::uoffset_t>(program.size() / 4);
  flatbuffers::Verifier verifier(program.data(), program.size(), options);
  if (!wire::VerifyProgramBuffer(verifier)) {
    return ProgramReader(nullptr);
  }
  const wire::Program* root = wire::GetProgram(program.data());
  return ProgramReader(are_aligned(*root) ? root : nullptr);
}

size_t ProgramReader::num_segments() const {
  return size_of(as<wire::Program>(table_)->segments());
}

SegmentReader ProgramReader::segment(size_t index) const {
  return SegmentReader(as<wire::Program>(table_)->segments()->Get(index));
}

ArenasReader ProgramReader::arenas() const {
  return ArenasReader(as<wire::Program>(table_)->program_arenas());
}

size_t ProgramReader::num_plans() const {
  return size_of(as<wire::Program>(table_)->execution_plan());
}

PlanReader ProgramReader::plan(size_t index) const {
  return PlanReader(as<wire::Program>(table_)->execution_plan()->Get(index));
}

InitialDataReader ProgramReader::initial_data() const {
  const auto* program = as<wire::Program>(table_);
  const auto* lists = program->mutable_data_segments();
  if (size_of(lists) == 0) {
    return {};
  }
  const uint32_t index = lists->Get(0)->segment_index();
  if (index >= size_of(program->segments())) {
    return {};
  }
  const wire::DataSegment* segment = program->segments()->Get(index);
  return {true, index, segment->offset(), segment->size(),
          span_of(lists->Get(0)->offsets())};
}

uint64_t SegmentReader::offset() const {
  return as<wire::DataSegment>(table_)->offset();
}

uint64_t SegmentReader::size() const {
  return as<wire::DataSegment>(table_)->size();
}

uint32_t ArenasReader::format() const {
  return as<wire::ProgramArenas>(table_)->format();
}

size_t ArenasReader::num_features() const {
  return size_of(as<wire::ProgramArenas>(table_)->required_features());
}

std::string_view ArenasReader::feature(size_t index) const {
  return text_of(
      as<wire::ProgramArenas>(table_)->required_features()->Get(index));
}

size_t ArenasReader::num_arenas() const {
  return size_of(as<wire::ProgramArenas>(table_)->arenas());
}

ArenaReader ArenasReader::arena(size_t index) const {
  return ArenaReader(as<wire::ProgramArenas>(table_)->arenas()->Get(index));
}

std::string_view ArenaReader::name() const {
  return text_of(as<wire::ProgramArena>(table_)->name());
}

uint64_t ArenaReader::size() const {
  return as<wire::ProgramArena>(table_)->size();
}

uint32_t ArenaReader::alignment() const {
  return as<wire::ProgramArena>(table_)->alignment();
}

int ArenaReader::lifetime() const {
  return static_cast<int>(as<wire::ProgramArena>(table_)->lifetime());
}

int ArenaReader::device_type() const {
  return static_cast<int>(as<wire::ProgramArena>(table_)->device_type());
}

int ArenaReader::device_index() const {
  return as<wire::ProgramArena>(table_)->device_index();
}

size_t ArenaReader::num_slots() const {
  return size_of(as<wire::ProgramArena>(table_)->slots());
}

SlotReader ArenaReader::slot(size_t index) const {
  return SlotReader(as<wire::ProgramArena>(table_)->slots()->Get(index));
}

std::string_view SlotReader::name() const {
  return text_of(as<wire::ArenaSlot>(table_)->fully_qualified_name());
}

int SlotReader::scalar_type() const {
  return static_cast<int>(as<wire::ArenaSlot>(table_)->scalar_type());
}

runtime::Span<const int32_t> SlotReader::sizes() const {
  return span_of(as<wire::ArenaSlot>(table_)->sizes());
}

runtime::Span<const uint8_t> SlotReader::dim_order() const {
  return span_of(as<wire::ArenaSlot>(table_)->dim_order());
}

uint64_t SlotReader::offset() const {
  return as<wire::ArenaSlot>(table_)->offset();
}

uint64_t SlotReader::nbytes() const {
  return as<wire::ArenaSlot>(table_)->nbytes();
}

uint32_t SlotReader::data_buffer_idx() const {
  return as<wire::ArenaSlot>(table_)->data_buffer_idx();
}

uint32_t AccessReader::slot() const {
  return as<wire::SlotAccess>(table_)->slot();
}

int AccessReader::mode() const {
  return static_cast<int>(as<wire::SlotAccess>(table_)->mode());
}

uint32_t BindingReader::memory_id() const {
  return as<wire::ArenaBinding>(table_)->memory_id();
}

uint32_t BindingReader::arena() const {
  return as<wire::ArenaBinding>(table_)->arena();
}

size_t BindingReader::num_accesses() const {
  return size_of(as<wire::ArenaBinding>(table_)->accesses());
}

AccessReader BindingReader::access(size_t index) const {
  return AccessReader(as<wire::ArenaBinding>(table_)->accesses()->Get(index));
}

int PlannedTensorReader::scalar_type() const {
  return static_cast<int>(as<wire::Tensor>(table_)->scalar_type());
}

runtime::Span<const int32_t> PlannedTensorReader::sizes() const {
  return span_of(as<wire::Tensor>(table_)->sizes());
}

uint32_t PlannedTensorReader::data_buffer_idx() const {
  return as<wire::Tensor>(table_)->data_buffer_idx();
}

uint32_t PlannedTensorReader::memory_id() const {
  return as<wire::Tensor>(table_)->allocation_info()->memory_id();
}

uint64_t PlannedTensorReader::memory_offset() const {
  const wire::AllocationDetails* details =
      as<wire::Tensor>(table_)->allocation_info();
  return uint64_t{details->memory_offset_high()} << 32 |
         details->memory_offset_low();
}

std::string_view PlanReader::name() const {
  return text_of(as<wire::ExecutionPlan>(table_)->name());
}

size_t PlanReader::num_bindings() const {
  return size_of(as<wire::ExecutionPlan>(table_)->arena_bindings());
}

BindingReader PlanReader::binding(size_t index) const {
  return BindingReader(
      as<wire::ExecutionPlan>(table_)->arena_bindings()->Get(index));
}

size_t PlanReader::num_buffer_sizes() const {
  return size_of(as<wire::ExecutionPlan>(table_)->non_const_buffer_sizes());
}

int64_t PlanReader::buffer_size(size_t memory_id) const {
  return as<wire::ExecutionPlan>(table_)->non_const_buffer_sizes()->Get(
      memory_id);
}

void PlanReader::buffer_device(size_t memory_id, int* type, int* index) const {
  *type = static_cast<int>(wire::DeviceType::CPU);
  *index = 0;
  const auto* devices =
      as<wire::ExecutionPlan>(table_)->non_const_buffer_device();
  for (size_t i = 0; i < size_of(devices); ++i) {
    const wire::NonConstBufferDevice* device = devices->Get(i);
    if (device->buffer_idx() >= 0 &&
        static_cast<size_t>(device->buffer_idx()) == memory_id) {
      *type = static_cast<int>(device->device_type());
      *index = device->device_index();
      return;
    }
  }
}

size_t PlanReader::num_values() const {
  return size_of(as<wire::ExecutionPlan>(table_)->values());
}

size_t PlanReader::num_operators() const {
  return size_of(as<wire::ExecutionPlan>(table_)->operators());
}

OperatorName PlanReader::operator_name(size_t index) const {
  const wire::Operator& op = *as<wire::ExecutionPlan>(table_)->operators()->Get(
      static_cast<flatbuffers::uoffset_t>(index));
  return {text_of(op.name()), text_of(op.overload())};
}

size_t PlanReader::num_inputs() const {
  return size_of(as<wire::ExecutionPlan>(table_)->inputs());
}

int32_t PlanReader::input(size_t index) const {
  return as<wire::ExecutionPlan>(table_)->inputs()->Get(index);
}

size_t PlanReader::num_outputs() const {
  return size_of(as<wire::ExecutionPlan>(table_)->outputs());
}

int32_t PlanReader::output(size_t index) const {
  return as<wire::ExecutionPlan>(table_)->outputs()->Get(index);
}

bool PlanReader::is_mutated(int32_t value) const {
  const auto& plan = *as<wire::ExecutionPlan>(table_);
  for (size_t c = 0; c < size_of(plan.chains()); ++c) {
    const auto* instructions = plan.chains()->Get(c)->instructions();
    for (size_t i = 0; i < size_of(instructions); ++i) {
      if (mutates(plan, *instructions->Get(i), value)) {
        return true;
      }
    }
  }
  return false;
}

PlannedTensorReader PlanReader::planned_tensor(size_t value) const {
  const wire::Tensor* tensor =
      as<wire::ExecutionPlan>(table_)->values()->Get(value)->val_as_Tensor();
  return PlannedTensorReader(
      tensor == nullptr || tensor->allocation_info() == nullptr ? nullptr
                                                                : tensor);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
