#include <executorch/extension/arenas/bind_arenas.h>
#include <executorch/extension/arenas/loaded_method.h>

#include <utility>

#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Result;
using runtime::Span;

namespace {

// At least as much as any kernel or delegate asks for on the host.
constexpr size_t kPrivateAlignment = 64;

/// Allocates the buffers that the method does not share; leaves a gap for each
/// of the others.
Error allocate_private(const ArenaTable& table, size_t method,
                       std::vector<ZeroedMemory>* memory,
                       std::vector<Span<uint8_t>>* planned) {
  const size_t count = table.num_planned_buffers(method);
  planned->resize(count);
  for (size_t i = 0; i < count; ++i) {
    const PlannedBuffer buffer = table.planned_buffer(method, i);
    if (buffer.arena.has_value()) {
      continue;
    }
    if (buffer.size > SIZE_MAX) {
      return Error::MemoryAllocationFailed;
    }
    Result<ZeroedMemory> block = ZeroedMemory::allocate(
        static_cast<size_t>(buffer.size), kPrivateAlignment);
    if (!block.ok()) {
      return Error::MemoryAllocationFailed;
    }
    (*planned)[i] = block->span();
    memory->push_back(std::move(*block));
  }
  return Error::Ok;
}

}  // namespace

LoadedMethod::LoadedMethod(const char* name,
                           std::vector<ZeroedMemory> private_memory,
                           std::vector<Span<uint8_t>> planned)
    : name_(name),
      private_memory_(std::move(private_memory)),
      planned_spans_(std::move(planned)),
      planned_memory_({planned_spans_.data(), planned_spans_.size()}),
      memory_manager_(&method_allocator_, &planned_memory_, &temp_allocator_) {}

Result<std::unique_ptr<LoadedMethod>> LoadedMethod::load(
    const ArenaProgram& program, const ArenaPool& arenas, const char* name,
    const runtime::LoadBackendOptionsMap* backend_options) {
  const ArenaTable& table = program.table();
  const Result<size_t> index = table.find_method(name);
  if (!index.ok()) {
    return index.error();
  }
  ET_CHECK_OK_OR_RETURN_ERROR(table.check_method(*index));
  std::vector<ZeroedMemory> memory;
  std::vector<Span<uint8_t>> planned;
  Error error = allocate_private(table, *index, &memory, &planned);
  if (error != Error::Ok) {
    return error;
  }
  error = bind_arenas(table, name, {planned.data(), planned.size()},
                      arenas.spans());
  if (error != Error::Ok) {
    return error;
  }
  std::unique_ptr<LoadedMethod> loaded(
      new LoadedMethod(name, std::move(memory), std::move(planned)));
  const internal::ProgramLoader::Protection protection(arenas);
  Result<Method> method = program.program().load_method(
      name, &loaded->memory_manager_, /*event_tracer=*/nullptr,
      /*named_data_map=*/nullptr, backend_options);
  if (!method.ok()) {
    return method.error();
  }
  loaded->method_.emplace(std::move(*method));
  return loaded;
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
