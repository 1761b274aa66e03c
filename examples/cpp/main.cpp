// Counts with a program whose methods share state, such as
// tests/golden/counter.pte: `forward(step)` adds to a count that starts at 5
// and returns it, `get()` returns it.

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <executorch/extension/tensor/tensor.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace arenas = executorch::extension::arenas;
using executorch::extension::make_tensor_ptr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Span;
using executorch::runtime::to_string;

// Runs a method and prints the count that it returns.
void run(arenas::Session& session, const char* method,
         Span<const EValue> inputs = {}) {
  const auto outputs = session.execute(method, inputs);
  if (!outputs.ok()) {
    std::fprintf(stderr, "%s: %s\n", method, to_string(outputs.error()));
    std::exit(1);
  }
  const auto count = outputs->at(0).toTensor().const_data_ptr<int64_t>()[0];
  std::printf("%s: %" PRId64 "\n", method, count);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: counter FILE.pte\n");
    return 2;
  }
  arenas::Finding finding;
  const auto program = arenas::ArenaProgram::load(argv[1], &finding);
  if (!program.ok()) {
    std::fprintf(stderr, "%s: %s %s: %s\n", argv[1], to_string(program.error()),
                 finding.path, finding.message);
    return 1;
  }
  // The arenas are allocated here, once; a second session would have its own.
  const auto session = arenas::Session::create(*program, {}, &finding);
  if (!session.ok()) {
    std::fprintf(stderr, "%s: %s\n", finding.path, finding.message);
    return 1;
  }

  const auto step = make_tensor_ptr({}, std::vector<int64_t>{2});
  const EValue input(*step);
  run(**session, "get");
  run(**session, "forward", {&input, 1});
  run(**session, "forward", {&input, 1});
  run(**session, "get");
  if ((*session)->reset("state") != Error::Ok) {
    return 1;
  }
  run(**session, "get");
  return 0;
}
