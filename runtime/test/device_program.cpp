#include "device_program.h"

#include <executorch/runtime/backend/interface.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "guarded_device.h"
#include "program_builder.h"

namespace pte_arenas {
namespace test {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

namespace {

constexpr char kBackend[] = "GuardedDevice";

using Pair = std::array<float, 2>;

/// Runs the two methods of `device_program()`, told apart by their arguments.
class GuardedBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*,
                               ArrayRef<CompileSpec>) const override {
    return nullptr;
  }

  Error execute(BackendExecutionContext&, DelegateHandle*,
                Span<EValue*> args) const override {
    Pair n{};
    ET_CHECK_OK_OR_RETURN_ERROR(read(*args[0], &n));
    if (args.size() == 2) {
      return store(n, *args[1]);
    }
    const float* const x = args[1]->toTensor().const_data_ptr<float>();
    Pair t{};
    ET_CHECK_OK_OR_RETURN_ERROR(read(*args[2], &t));
    for (size_t i = 0; i < 2; ++i) {
      n[i] += x[i];
      t[i] += x[i];
    }
    ET_CHECK_OK_OR_RETURN_ERROR(write(n, *args[0]));
    ET_CHECK_OK_OR_RETURN_ERROR(write(t, *args[2]));
    return store({n[0] + t[0], n[1] + t[1]}, *args[3]);
  }

 private:
  static Error read(const EValue& value, Pair* to) {
    return GuardedDevice::get().copy_device_to_host(
        to->data(), value.toTensor().const_data_ptr(), sizeof(*to),
        kDeviceIndex);
  }
  static Error write(const Pair& from, const EValue& value) {
    return GuardedDevice::get().copy_host_to_device(
        value.toTensor().mutable_data_ptr(), from.data(), sizeof(from),
        kDeviceIndex);
  }
  static Error store(const Pair& from, const EValue& value) {
    std::memcpy(value.toTensor().mutable_data_ptr(), from.data(), sizeof(from));
    return Error::Ok;
  }
};

std::unique_ptr<wire::EValueT> tensor_value(uint32_t memory_id, bool on_device,
                                            uint32_t offset = 0) {
  wire::TensorT tensor;
  tensor.scalar_type = wire::ScalarType::FLOAT;
  tensor.sizes = {2};
  tensor.dim_order = {0};
  tensor.allocation_info = std::make_unique<wire::AllocationDetailsT>();
  tensor.allocation_info->memory_id = memory_id;
  tensor.allocation_info->memory_offset_low = offset;
  if (on_device) {
    tensor.extra_tensor_info = std::make_unique<wire::ExtraTensorInfoT>();
    tensor.extra_tensor_info->device_type = wire::DeviceType::CUDA;
    tensor.extra_tensor_info->device_index = kDeviceIndex;
  }
  auto value = std::make_unique<wire::EValueT>();
  value->val.Set(std::move(tensor));
  return value;
}

void place_on_device(wire::ExecutionPlanT& plan, int32_t memory_id) {
  auto device = std::make_unique<wire::NonConstBufferDeviceT>();
  device->buffer_idx = memory_id;
  device->device_type = wire::DeviceType::CUDA;
  device->device_index = kDeviceIndex;
  plan.non_const_buffer_device.push_back(std::move(device));
}

/// Makes the delegate, over some values, all that a plan does.
void delegate(wire::ExecutionPlanT& plan, std::vector<int32_t> args) {
  auto backend = std::make_unique<wire::BackendDelegateT>();
  backend->id = kBackend;
  backend->processed = std::make_unique<wire::BackendDelegateDataReferenceT>();
  backend->compile_specs.push_back(std::make_unique<wire::CompileSpecT>());
  backend->compile_specs[0]->key = "none";
  backend->compile_specs[0]->value = {0};
  plan.delegates.push_back(std::move(backend));
  wire::DelegateCallT call;
  call.args = std::move(args);
  auto instruction = std::make_unique<wire::InstructionT>();
  instruction->instr_args.Set(std::move(call));
  plan.chains[0]->instructions.clear();
  plan.chains[0]->instructions.push_back(std::move(instruction));
}

}  // namespace

wire::ProgramT device_program() {
  static GuardedBackend backend;
  static const Error registered =
      executorch::runtime::register_backend({kBackend, &backend});
  ET_CHECK(registered == Error::Ok);
  wire::ProgramT program = counter_program();
  program.backend_delegate_data.push_back(
      std::make_unique<wire::BackendDelegateInlineDataT>());
  program.backend_delegate_data[0]->data = {0};
  auto& arena = *program.program_arenas->arenas[0];
  arena.device_type = wire::DeviceType::CUDA;
  arena.device_index = kDeviceIndex;

  wire::ExecutionPlanT& bump = *program.execution_plan[0];
  bump.values.clear();
  bump.values.push_back(tensor_value(2, true));
  bump.values.push_back(tensor_value(1, false));
  bump.values.push_back(tensor_value(3, true));
  bump.values[2]->val.AsTensor()->data_buffer_idx = 1;
  bump.values.push_back(tensor_value(1, false, 16));
  bump.inputs = {1};
  bump.outputs = {3};
  bump.operators.clear();
  bump.non_const_buffer_sizes = {0, 64, 0, 16};
  place_on_device(bump, 2);
  place_on_device(bump, 3);
  delegate(bump, {0, 1, 2, 3});

  wire::ExecutionPlanT& get = *program.execution_plan[1];
  get.values.clear();
  get.values.push_back(tensor_value(2, true));
  get.values.push_back(tensor_value(1, false));
  get.outputs = {1};
  place_on_device(get, 2);
  delegate(get, {0, 1});
  return program;
}

}  // namespace test
}  // namespace pte_arenas
