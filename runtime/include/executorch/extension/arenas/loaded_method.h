#pragma once

#include <executorch/extension/arenas/arena_pool.h>
#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/memory_block.h>
#include <executorch/extension/arenas/method_allocator.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/core/portable_type/device.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * A method of a session with the memory that is its own.
 *
 * Bound memory ids are the session's arenas; the others, private to this
 * method, start as zeros on the device that they are planned on and end with
 * it. A session shares ownership of its methods: `shared_from_this()` keeps one
 * that is unloaded.
 */
class ET_ARENAS_API LoadedMethod final
    : public std::enable_shared_from_this<LoadedMethod> {
 public:
  using Method = executorch::ET_RUNTIME_NAMESPACE::Method;

  /**
   * Loads a method over arenas. Writes no byte of them.
   *
   * @param[in] program Must outlive the method.
   * @param[in] arenas Must outlive the method.
   * @param[in] name Name of the method.
   * @param[in] backend_options Options for the delegates; may be null.
   * @param[in] event_tracer May be null; must outlive the method.
   * @param[out] finding If not null, filled when there is no memory for a
   *     private buffer.
   *
   * @retval Error::NotFound No method has this name.
   * @retval Error::InvalidProgram The method refers to what the file has not.
   * @retval Error::NotSupported No allocator is registered for the device of a
   *     private buffer.
   * @retval Error::MemoryAllocationFailed No memory for the private buffers.
   * @returns Other errors of `Program::load_method()`.
   */
  static runtime::Result<std::unique_ptr<LoadedMethod>> load(
      const ArenaProgram& program, const ArenaPool& arenas, const char* name,
      const runtime::LoadBackendOptionsMap* backend_options,
      runtime::EventTracer* event_tracer = nullptr, Finding* finding = nullptr);

  LoadedMethod(const LoadedMethod&) = delete;
  LoadedMethod& operator=(const LoadedMethod&) = delete;

  const std::string& name() const { return name_; }

  /// What it was loaded over.
  const ArenaPool& arenas() const { return *arenas_; }

  size_t num_inputs() const { return num_inputs_; }
  size_t num_outputs() const { return num_outputs_; }

  /// Valid as long as this object. Whoever calls it directly sees to it that no
  /// other call uses the session meanwhile; see `Session::use()`.
  Method& method() { return *method_; }

  /// Whether an address of the host lies in memory that the program planned for
  /// the method, private or an arena, and so lives as long as both.
  bool plans(const void* address) const;

 private:
  using Device = runtime::etensor::Device;

  LoadedMethod(const char* name, const ArenaPool& arenas,
               std::vector<MemoryBlock> private_memory,
               std::vector<runtime::Span<uint8_t>> planned,
               std::vector<Device> devices);

  std::string name_;
  const ArenaPool* arenas_;
  // Looked up once: a short method takes no longer than a few such calls.
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  std::vector<MemoryBlock> private_memory_;
  std::vector<runtime::Span<uint8_t>> planned_spans_;
  /// One for each planned buffer, or none if all are on the host.
  std::vector<Device> planned_devices_;
  MethodAllocator method_allocator_;
  MethodAllocator temp_allocator_;
  runtime::HierarchicalAllocator planned_memory_;
  runtime::MemoryManager memory_manager_;
  // Last, so that it goes before the memory it lives in.
  std::optional<Method> method_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
