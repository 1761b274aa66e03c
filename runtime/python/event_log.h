#pragma once

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/runtime/core/error.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace pte_arenas {

/// What a session does, as an ETDump. Externally synchronised.
class EventLog final {
 public:
  /// A file of `executorch.devtools`, freed by `std::free`.
  struct Dump {
    std::unique_ptr<void, decltype(&std::free)> bytes{nullptr, &std::free};
    size_t size = 0;
    /// Values of tensors, which the file points into; valid until the next
    /// event.
    const uint8_t* debug_bytes = nullptr;
    size_t debug_size = 0;
    /// Whether values are missing, for which there was no room.
    bool is_cut = false;
  };

  /// @param[in] debug_buffer_size Room for the values of all tensors, in bytes;
  ///     0 to log times only.
  explicit EventLog(size_t debug_buffer_size);

  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  executorch::runtime::EventTracer* tracer() { return &tracer_; }

  /// Ends the dump; the next event begins another. Empty if there was none.
  Dump take();

 private:
  /// Leaves out values for which there is no room; `ETDumpGen` would end the
  /// process.
  class Tracer final : public executorch::etdump::ETDumpGen {
   public:
    using Tensor = executorch::aten::Tensor;
    using Tensors = executorch::runtime::ArrayRef<Tensor>;
    using ETDumpGen::log_intermediate_output_delegate;

    executorch::runtime::Result<bool> log_evalue(
        const executorch::runtime::EValue& value,
        executorch::runtime::LoggedEValueType type) override;
    executorch::runtime::Result<bool> log_intermediate_output_delegate(
        const char* name, executorch::runtime::DelegateDebugIntId index,
        const Tensor& output) override;
    executorch::runtime::Result<bool> log_intermediate_output_delegate(
        const char* name, executorch::runtime::DelegateDebugIntId index,
        Tensors output) override;

    /// Bytes of the buffer for values.
    size_t capacity = 0;
    bool is_full = false;

   private:
    /// Whether tensors fit; if not, notes it.
    bool has_room(Tensors tensors);
  };

  void begin();

  std::unique_ptr<uint8_t[]> debug_buffer_;
  Tracer tracer_;
};

}  // namespace pte_arenas
