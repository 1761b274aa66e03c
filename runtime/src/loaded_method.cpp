#include <executorch/extension/arenas/bind_arenas.h>
#include <executorch/extension/arenas/loaded_method.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include <functional>
#include <utility>

#include "message.h"
#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::DeviceName;
using internal::refuse;
using internal::write_path;
using runtime::Error;
using runtime::Result;
using runtime::Span;
using runtime::etensor::Device;

namespace {

// At least as much as any kernel or delegate asks for on the host.
constexpr size_t kPrivateAlignment = 64;

/// Says why there is no memory for a private buffer.
Error refuse_buffer(size_t method, size_t memory_id,
                    const PlannedBuffer& buffer, Error error,
                    Finding* finding) {
  const DeviceName device{static_cast<int>(buffer.device.type()),
                          static_cast<int>(buffer.device.index())};
  if (error == Error::NotSupported) {
    write_path(finding, "execution_plan[", uint64_t{method},
               "].non_const_buffer_device");
    (void)refuse(finding, "expected a device allocator for memory id ",
                 uint64_t{memory_id}, " on ", device,
                 " but found none: link the backend that registers one");
    return error;
  }
  write_path(finding, "execution_plan[", uint64_t{method},
             "].non_const_buffer_sizes[", uint64_t{memory_id}, "]");
  (void)refuse(finding, "expected memory on ", device, " for ", buffer.size,
               " bytes but found ", runtime::to_string(error));
  return error == Error::InvalidArgument ? Error::MemoryAllocationFailed
                                         : error;
}

bool has_kernel(const std::string& operator_name) {
  for (const ET_RUNTIME_NAMESPACE::Kernel& kernel :
       ET_RUNTIME_NAMESPACE::get_registered_kernels()) {
    if (operator_name == kernel.name_) {
      return true;
    }
  }
  return false;
}

/// Names the first operator that has no kernel at all; one may have some, but
/// none for the dtypes that the method has.
void find_missing_operator(const ArenaTable& table, size_t method,
                           Finding* finding) {
  for (size_t i = 0; i < table.num_operators(method); ++i) {
    const OperatorName op = table.operator_name(method, i);
    std::string name(op.name);
    if (!op.overload.empty()) {
      name.append(".").append(op.overload);
    }
    if (!has_kernel(name)) {
      write_path(finding, "execution_plan[", uint64_t{method}, "].operators[",
                 uint64_t{i}, "]");
      (void)refuse(finding, "expected a kernel for ", std::string_view(name),
                   " but found none: link the library that registers it");
      return;
    }
  }
}

/// Allocates the buffers that the method does not share; leaves a gap for each
/// of the others.
Error allocate_private(const ArenaTable& table, size_t method,
                       std::vector<MemoryBlock>* memory,
                       std::vector<Span<uint8_t>>* planned, Finding* finding) {
  for (size_t i = 0; i < planned->size(); ++i) {
    const PlannedBuffer buffer = table.planned_buffer(method, i);
    if (buffer.arena.has_value()) {
      continue;
    }
    Result<MemoryBlock> block =
        buffer.size > SIZE_MAX
            ? Error::MemoryAllocationFailed
            : MemoryBlock::allocate(static_cast<size_t>(buffer.size),
                                    kPrivateAlignment, buffer.device);
    if (!block.ok()) {
      return refuse_buffer(method, i + 1, buffer, block.error(), finding);
    }
    (*planned)[i] = block->span();
    memory->push_back(std::move(*block));
  }
  return Error::Ok;
}

/// The device of each planned buffer; empty if all are on the host, which is
/// how ExecuTorch wants to be told.
std::vector<Device> planned_devices(const ArenaTable& table, size_t method) {
  std::vector<Device> devices;
  bool any = false;
  for (size_t i = 0; i < table.num_planned_buffers(method); ++i) {
    devices.push_back(table.planned_buffer(method, i).device);
    any = any || !devices.back().is_cpu();
  }
  return any ? devices : std::vector<Device>();
}

runtime::HierarchicalAllocator allocator_of(std::vector<Span<uint8_t>>& spans,
                                            std::vector<Device>& devices) {
  using runtime::HierarchicalAllocator;
  const Span<Span<uint8_t>> buffers(spans.data(), spans.size());
  return devices.empty()
             ? HierarchicalAllocator(buffers)
             : HierarchicalAllocator(
                   buffers, Span<const Device>(devices.data(), devices.size()));
}

}  // namespace

LoadedMethod::LoadedMethod(const char* name, const ArenaPool& arenas,
                           std::vector<MemoryBlock> private_memory,
                           std::vector<Span<uint8_t>> planned,
                           std::vector<Device> devices)
    : name_(name),
      arenas_(&arenas),
      private_memory_(std::move(private_memory)),
      planned_spans_(std::move(planned)),
      planned_devices_(std::move(devices)),
      planned_memory_(allocator_of(planned_spans_, planned_devices_)),
      memory_manager_(&method_allocator_, &planned_memory_, &temp_allocator_) {}

bool LoadedMethod::plans(const void* address) const {
  const auto* const byte = static_cast<const uint8_t*>(address);
  const std::less_equal<const uint8_t*> at_or_before;
  for (size_t i = 0; i < planned_spans_.size(); ++i) {
    const Span<uint8_t>& span = planned_spans_[i];
    if (at_or_before(span.begin(), byte) && !at_or_before(span.end(), byte)) {
      return planned_devices_.empty() || planned_devices_[i].is_cpu();
    }
  }
  return false;
}

Result<std::unique_ptr<LoadedMethod>> LoadedMethod::load(
    const ArenaProgram& program, const ArenaPool& arenas, const char* name,
    const runtime::LoadBackendOptionsMap* backend_options,
    runtime::EventTracer* event_tracer, Finding* finding) {
  const ArenaTable& table = program.table();
  const Result<size_t> index = table.find_method(name);
  if (!index.ok()) {
    return index.error();
  }
  ET_CHECK_OK_OR_RETURN_ERROR(table.check_method(*index));
  std::vector<MemoryBlock> memory;
  std::vector<Span<uint8_t>> planned(table.num_planned_buffers(*index));
  Error error = allocate_private(table, *index, &memory, &planned, finding);
  if (error != Error::Ok) {
    return error;
  }
  error = bind_arenas(table, name, {planned.data(), planned.size()},
                      arenas.spans());
  if (error != Error::Ok) {
    return error;
  }
  std::unique_ptr<LoadedMethod> loaded(
      new LoadedMethod(name, arenas, std::move(memory), std::move(planned),
                       planned_devices(table, *index)));
  const internal::ProgramLoader::Protection protection(
      arenas, {loaded->private_memory_.data(), loaded->private_memory_.size()});
  Result<Method> method = program.program().load_method(
      name, &loaded->memory_manager_, event_tracer, program.data(),
      backend_options);
  if (!method.ok()) {
    if (method.error() == Error::OperatorMissing) {
      find_missing_operator(table, *index, finding);
    }
    return method.error();
  }
  loaded->method_.emplace(std::move(*method));
  loaded->num_inputs_ = loaded->method_->inputs_size();
  loaded->num_outputs_ = loaded->method_->outputs_size();
  return loaded;
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
