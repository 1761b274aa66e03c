#include "event_log.h"

#include <executorch/runtime/core/event_tracer.h>

namespace pte_arenas {

using executorch::runtime::EValue;
using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::LoggedEValueType;
using executorch::runtime::Result;

Result<bool> EventLog::Tracer::log_evalue(const EValue& value,
                                          LoggedEValueType type) {
  Result<bool> logged = ETDumpGen::log_evalue(value, type);
  is_full = is_full || !logged.ok();
  return logged;
}

EventLog::EventLog(size_t debug_buffer_size)
    : debug_buffer_size_(debug_buffer_size),
      // Left as it is: large, and seldom used to its end.
      debug_buffer_(new uint8_t[debug_buffer_size]) {
  if (debug_buffer_size > 0) {
    tracer_.set_event_tracer_debug_level(
        EventTracerDebugLogLevel::kIntermediateOutputs);
  }
  begin();
}

void EventLog::begin() {
  tracer_.is_full = false;
  if (debug_buffer_size_ > 0) {
    // Fails only without a buffer. Values go to its start again.
    (void)tracer_.set_debug_buffer({debug_buffer_.get(), debug_buffer_size_});
  }
}

EventLog::Dump EventLog::take() {
  Dump dump;
  if (tracer_.get_num_blocks() == 0) {
    return dump;
  }
  const auto result = tracer_.get_etdump_data();
  dump.bytes.reset(result.buf);
  dump.size = result.size;
  dump.is_cut = tracer_.is_full;
  if (debug_buffer_size_ > 0) {
    dump.debug_bytes = debug_buffer_.get();
    dump.debug_size = tracer_.get_data_sink()->get_used_bytes();
  }
  tracer_.reset();
  begin();
  return dump;
}

}  // namespace pte_arenas
