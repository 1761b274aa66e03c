#include "event_log.h"

#include <executorch/runtime/core/event_tracer.h>

#include <new>
#include <string>

#include "raising.h"

namespace pte_arenas {

using executorch::runtime::DelegateDebugIntId;
using executorch::runtime::EValue;
using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::LoggedEValueType;
using executorch::runtime::Result;

bool EventLog::Tracer::has_room(Tensors tensors) {
  size_t used =
      get_data_sink() == nullptr ? 0 : get_data_sink()->get_used_bytes();
  for (const Tensor& tensor : tensors) {
    // Where values begin is a multiple of 64 (BufferDataSink).
    const size_t begin = used + 64;
    if (capacity < begin || capacity - begin < tensor.nbytes()) {
      is_full = true;
      return false;
    }
    used = begin + tensor.nbytes();
  }
  return true;
}

Result<bool> EventLog::Tracer::log_evalue(const EValue& value,
                                          LoggedEValueType type) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    if (!has_room({&tensor, 1})) {
      return false;
    }
  } else if (value.isTensorList() && !has_room(value.toTensorList())) {
    return false;
  }
  return ETDumpGen::log_evalue(value, type);
}

Result<bool> EventLog::Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId index, const Tensor& output) {
  return has_room({&output, 1})
             ? ETDumpGen::log_intermediate_output_delegate(name, index, output)
             : Result<bool>(false);
}

Result<bool> EventLog::Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId index, Tensors output) {
  return has_room(output)
             ? ETDumpGen::log_intermediate_output_delegate(name, index, output)
             : Result<bool>(false);
}

EventLog::EventLog(size_t debug_buffer_size)
    // Left as it is: large, and seldom used to its end.
    : debug_buffer_(new (std::nothrow) uint8_t[debug_buffer_size]) {
  if (debug_buffer_ == nullptr) {
    raise_memory_error("debug_buffer_size: expected memory for " +
                       std::to_string(debug_buffer_size) +
                       " bytes but found none");
  }
  tracer_.capacity = debug_buffer_size;
  if (debug_buffer_size > 0) {
    tracer_.set_event_tracer_debug_level(
        EventTracerDebugLogLevel::kIntermediateOutputs);
  }
  begin();
}

void EventLog::begin() {
  tracer_.is_full = false;
  if (tracer_.capacity > 0) {
    // Fails only without a buffer. Values go to its start again.
    (void)tracer_.set_debug_buffer({debug_buffer_.get(), tracer_.capacity});
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
  if (tracer_.capacity > 0) {
    dump.debug_bytes = debug_buffer_.get();
    dump.debug_size = tracer_.get_data_sink()->get_used_bytes();
  }
  tracer_.reset();
  begin();
  return dump;
}

}  // namespace pte_arenas
