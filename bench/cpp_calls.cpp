// Times a call through a Session and the same through its bare Method, and
// prints the seconds of each as JSON. Argument: a program whose method
// `forward` takes one float tensor of four elements. See bench/calls.py.

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace arenas = executorch::extension::arenas;

using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Span;

namespace {

constexpr int kCalls = 500;
constexpr int kTurns = 4000;

void require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "expected %s\n", what);
    std::exit(1);
  }
}

template <typename Call>
double seconds_of(Call call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) {
    require(call() == Error::Ok, "a call that succeeds");
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - begin;
  return time.count() / kCalls;
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 2, "the path of a program");
  const auto program = arenas::ArenaProgram::load(argv[1]);
  require(program.ok(), "a program");
  const auto session = arenas::Session::create(*program);
  require(session.ok(), "a session");
  const auto loaded = (*session)->load_method("forward");
  require(loaded.ok(), "a method forward");

  // Without a second thread glibc leaves out locks.
  std::atomic<bool> stop{false};
  std::thread other([&stop] {
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });

  const auto tensor =
      executorch::extension::make_tensor_ptr({4}, {1.0F, 2.0F, 3.0F, 4.0F});
  EValue input(*tensor);
  EValue output;
  auto& method = (*loaded)->method();
  const auto bare = [&] {
    ET_CHECK_OK_OR_RETURN_ERROR(method.set_input(input, 0));
    ET_CHECK_OK_OR_RETURN_ERROR(method.execute());
    output = method.get_output(0);
    return Error::Ok;
  };
  const auto through_session = [&] {
    return (*session)->execute(**loaded, Span<const EValue>(&input, 1),
                               Span<EValue>(&output, 1));
  };
  double fastest_bare = 1;
  double fastest_session = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    fastest_bare = std::min(fastest_bare, seconds_of(bare));
    fastest_session = std::min(fastest_session, seconds_of(through_session));
  }
  stop = true;
  other.join();
  std::printf("{\"method\": %.10f, \"session\": %.10f}\n", fastest_bare,
              fastest_session);
  return 0;
}
