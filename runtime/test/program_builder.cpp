#include "program_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pte_arenas {
namespace test {
namespace {

constexpr size_t kSegmentSize = 64;
// Where the initial value of `n` lies in the segment.
constexpr size_t kInitialOffset = 16;
constexpr size_t kHeaderSize = 32;
constexpr uint32_t kStateMemoryId = 2;

bool has_initial_value(const CounterOptions& options) {
  return std::any_of(options.initial.begin(), options.initial.end(),
                     [](float value) { return value != 0; });
}

std::unique_ptr<wire::EValueT> tensor_value(uint32_t memory_id,
                                            uint32_t data_buffer_idx) {
  auto tensor = std::make_unique<wire::TensorT>();
  tensor->scalar_type = wire::ScalarType::FLOAT;
  tensor->sizes = {2};
  tensor->dim_order = {0};
  tensor->data_buffer_idx = data_buffer_idx;
  tensor->allocation_info = std::make_unique<wire::AllocationDetailsT>();
  tensor->allocation_info->memory_id = memory_id;
  auto value = std::make_unique<wire::EValueT>();
  value->val.Set(std::move(*tensor));
  return value;
}

std::unique_ptr<wire::EValueT> int_value(int64_t number) {
  wire::IntT content;
  content.int_val = number;
  auto value = std::make_unique<wire::EValueT>();
  value->val.Set(std::move(content));
  return value;
}

/// The parts that both methods have; value 0 is the state.
std::unique_ptr<wire::ExecutionPlanT> plan(const char* name,
                                           const CounterOptions& options) {
  auto plan = std::make_unique<wire::ExecutionPlanT>();
  plan->name = name;
  const bool has_value = has_initial_value(options) &&
                         !(options.has_arenas && options.require_arenas);
  plan->values.push_back(tensor_value(kStateMemoryId, has_value ? 1 : 0));
  plan->outputs = {0};
  plan->chains.push_back(std::make_unique<wire::ChainT>());
  const int64_t arena_size = options.has_arenas ? 96 : 16;
  const bool is_required = options.has_arenas && options.require_arenas;
  plan->non_const_buffer_sizes = {0, 64, is_required ? 0 : arena_size};
  if (options.has_arenas) {
    plan->arena_bindings.push_back(std::make_unique<wire::ArenaBindingT>());
    plan->arena_bindings[0]->memory_id = kStateMemoryId;
  }
  return plan;
}

std::unique_ptr<wire::ExecutionPlanT> bump_plan(const CounterOptions& options) {
  auto bump = plan("bump", options);
  bump->values.push_back(tensor_value(1, 0));
  bump->values.push_back(int_value(1));
  bump->inputs = {1};
  bump->operators.push_back(std::make_unique<wire::OperatorT>());
  bump->operators[0]->name = "aten::add";
  bump->operators[0]->overload = "out";
  wire::KernelCallT add;  // n + 1 * x into n
  add.args = {0, 1, 2, 0, 0};
  auto instruction = std::make_unique<wire::InstructionT>();
  instruction->instr_args.Set(std::move(add));
  bump->chains[0]->instructions.push_back(std::move(instruction));
  return bump;
}

std::unique_ptr<wire::ArenaSlotT> slot(const char* name, int32_t size,
                                       uint64_t offset, uint32_t index) {
  auto slot = std::make_unique<wire::ArenaSlotT>();
  slot->fully_qualified_name = name;
  slot->scalar_type = wire::ScalarType::FLOAT;
  slot->sizes = {size};
  slot->dim_order = {0};
  slot->offset = offset;
  slot->nbytes = static_cast<uint64_t>(size) * sizeof(float);
  slot->data_buffer_idx = index;
  return slot;
}

void put(std::vector<uint8_t>* bytes, size_t offset, uint64_t value,
         size_t width) {
  for (size_t i = 0; i < width; ++i) {
    (*bytes)[offset + i] = static_cast<uint8_t>(value >> 8 * i);
  }
}

// The generated packing leaves out empty vectors, which ExecuTorch wants in
// plans; so plans and chains are packed here.

template <typename Table>
auto pack_all(flatbuffers::FlatBufferBuilder& builder,
              const std::vector<std::unique_ptr<Table>>& tables) {
  using Wire = typename Table::TableType;
  std::vector<flatbuffers::Offset<Wire>> offsets;
  for (const auto& table : tables) {
    offsets.push_back(Wire::Pack(builder, table.get()));
  }
  return builder.CreateVector(offsets);
}

flatbuffers::Offset<wire::ExecutionPlan> pack_plan(
    flatbuffers::FlatBufferBuilder& builder, const wire::ExecutionPlanT& plan) {
  std::vector<flatbuffers::Offset<wire::Chain>> chains;
  for (const auto& chain : plan.chains) {
    const auto instructions = pack_all(builder, chain->instructions);
    wire::ChainBuilder packed(builder);
    packed.add_instructions(instructions);
    chains.push_back(packed.Finish());
  }
  const auto name = builder.CreateString(plan.name);
  const auto values = pack_all(builder, plan.values);
  const auto inputs = builder.CreateVector(plan.inputs);
  const auto outputs = builder.CreateVector(plan.outputs);
  const auto packed_chains = builder.CreateVector(chains);
  const auto operators = pack_all(builder, plan.operators);
  const auto delegates = pack_all(builder, plan.delegates);
  const auto sizes = builder.CreateVector(plan.non_const_buffer_sizes);
  const auto devices = pack_all(builder, plan.non_const_buffer_device);
  const auto bindings = pack_all(builder, plan.arena_bindings);
  wire::ExecutionPlanBuilder packed(builder);
  packed.add_name(name);
  packed.add_values(values);
  packed.add_inputs(inputs);
  packed.add_outputs(outputs);
  packed.add_chains(packed_chains);
  packed.add_operators(operators);
  packed.add_delegates(delegates);
  packed.add_non_const_buffer_sizes(sizes);
  packed.add_non_const_buffer_device(devices);
  packed.add_arena_bindings(bindings);
  return packed.Finish();
}

flatbuffers::Offset<wire::Program> pack_program(
    flatbuffers::FlatBufferBuilder& builder, const wire::ProgramT& program) {
  std::vector<flatbuffers::Offset<wire::ExecutionPlan>> plans;
  for (const auto& plan : program.execution_plan) {
    plans.push_back(pack_plan(builder, *plan));
  }
  const auto packed_plans = builder.CreateVector(plans);
  const auto delegate_data = pack_all(builder, program.backend_delegate_data);
  const auto segments = pack_all(builder, program.segments);
  const auto constants =
      wire::SubsegmentOffsets::Pack(builder, program.constant_segment.get());
  const auto initial_data = pack_all(builder, program.mutable_data_segments);
  flatbuffers::Offset<wire::ProgramArenas> arenas;
  if (program.program_arenas != nullptr) {
    arenas = wire::ProgramArenas::Pack(builder, program.program_arenas.get());
  }
  wire::ProgramBuilder packed(builder);
  packed.add_execution_plan(packed_plans);
  packed.add_backend_delegate_data(delegate_data);
  packed.add_segments(segments);
  packed.add_constant_segment(constants);
  packed.add_mutable_data_segments(initial_data);
  if (program.program_arenas != nullptr) {
    packed.add_program_arenas(arenas);
  }
  return packed.Finish();
}

}  // namespace

wire::ProgramT counter_program(const CounterOptions& options) {
  wire::ProgramT program;
  program.execution_plan.push_back(bump_plan(options));
  program.execution_plan.push_back(plan("get", options));
  program.constant_segment = std::make_unique<wire::SubsegmentOffsetsT>();
  program.constant_segment->offsets = {0};
  program.segments.push_back(std::make_unique<wire::DataSegmentT>());
  program.segments[0]->size = kSegmentSize;
  program.mutable_data_segments.push_back(
      std::make_unique<wire::SubsegmentOffsetsT>());
  program.mutable_data_segments[0]->offsets = {0, kInitialOffset};
  if (options.has_arenas) {
    program.program_arenas = std::make_unique<wire::ProgramArenasT>();
    program.program_arenas->format = 1;
    auto arena = std::make_unique<wire::ProgramArenaT>();
    arena->name = "state";
    arena->size = 96;
    arena->slots.push_back(slot("n", 2, 0, has_initial_value(options) ? 1 : 0));
    arena->slots.push_back(slot("m", 3, 64, 0));
    program.program_arenas->arenas.push_back(std::move(arena));
  }
  return program;
}

FileBytes file_of(const wire::ProgramT& program,
                  const CounterOptions& options) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(pack_program(builder, program), wire::ProgramIdentifier());
  const uint8_t* const body = builder.GetBufferPointer();
  const size_t body_size = builder.GetSize();
  // The header goes behind the root offset and the identifier, which then
  // counts from where it was.
  const size_t program_size = (body_size + kHeaderSize + 15) / 16 * 16;
  std::vector<uint8_t> bytes(program_size + kSegmentSize);
  std::memcpy(bytes.data(), body, 8);
  std::memcpy(bytes.data() + 8 + kHeaderSize, body + 8, body_size - 8);
  put(&bytes, 0, flatbuffers::ReadScalar<uint32_t>(body) + kHeaderSize, 4);
  std::memcpy(bytes.data() + 8, "eh00", 4);
  put(&bytes, 12, kHeaderSize, 4);
  put(&bytes, 16, program_size, 8);
  put(&bytes, 24, program_size, 8);
  put(&bytes, 32, kSegmentSize, 8);
  std::memcpy(bytes.data() + program_size + kInitialOffset,
              options.initial.data(), options.initial.size() * sizeof(float));
  return FileBytes(bytes);
}

}  // namespace test
}  // namespace pte_arenas
