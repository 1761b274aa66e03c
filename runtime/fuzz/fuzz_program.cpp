// Any bytes: a program, a session and its methods load or are refused. Methods
// are not executed: kernels trust the number and the types of their arguments.

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <executorch/runtime/platform/platform.h>

#include <string>

#include "aligned_bytes.h"

using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::Session;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // ExecuTorch logs every refusal; so many of them are no use.
  executorch::runtime::register_pal(executorch::runtime::PalImpl::create(
      [](et_timestamp_t, et_pal_log_level_t, const char*, const char*, size_t,
         const char*, size_t) {},
      __FILE__));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const AlignedBytes file(bytes, size);
  const auto program = ArenaProgram::load(file.data(), file.size());
  if (!program.ok()) {
    return 0;
  }
  const auto session = Session::create(*program);
  if (!session.ok()) {
    return 0;
  }
  const auto& table = (*program)->table();
  for (size_t m = 0; m < table.num_methods(); ++m) {
    (void)(*session)->load_method(std::string(table.method_name(m)));
  }
  return 0;
}
