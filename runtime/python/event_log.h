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
  /// Tells when the room for values is used up; ExecuTorch does not.
  class Tracer final : public executorch::etdump::ETDumpGen {
   public:
    executorch::runtime::Result<bool> log_evalue(
        const executorch::runtime::EValue& value,
        executorch::runtime::LoggedEValueType type) override;

    bool is_full = false;
  };

  void begin();

  size_t debug_buffer_size_;
  std::unique_ptr<uint8_t[]> debug_buffer_;
  Tracer tracer_;
};

}  // namespace pte_arenas
