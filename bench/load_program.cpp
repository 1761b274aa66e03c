// Loads a program and its methods with stock's Module or with a Session, and
// prints what that took as JSON: seconds, and bytes that became resident.

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <executorch/extension/module/module.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace {

using executorch::extension::Module;
using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::Session;

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// Bytes of the process that are resident; of which file pages are not ours.
long resident() {
  long pages = 0;
  long shared = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr ||
      std::fscanf(file, "%*s %ld %ld", &pages, &shared) != 2) {
    std::perror("/proc/self/statm");
    std::exit(1);
  }
  std::fclose(file);
  return (pages - shared) * 4096;
}

bool load_stock(const char* path, bool share, char** begin, char** end) {
  static std::unique_ptr<Module> module;
  module = std::make_unique<Module>(path, Module::LoadMode::Mmap, nullptr,
                                    nullptr, nullptr, share);
  for (; begin != end; ++begin) {
    if (module->load_method(*begin) != executorch::runtime::Error::Ok) {
      return false;
    }
  }
  return true;
}

bool load_ours(const char* path, char** begin, char** end) {
  static std::unique_ptr<Session> session;
  auto program = ArenaProgram::load(path);
  if (!program.ok()) {
    return false;
  }
  auto created = Session::create(*program);
  if (!created.ok()) {
    return false;
  }
  session = std::move(*created);
  for (; begin != end; ++begin) {
    if (!session->load_method(*begin).ok()) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s stock|stock-shared|ours FILE METHOD...\n",
                 argv[0]);
    return 2;
  }
  const std::string way = argv[1];
  const long before = resident();
  const double start = now();
  const bool ok = way == "ours" ? load_ours(argv[2], argv + 3, argv + argc)
                                : load_stock(argv[2], way == "stock-shared",
                                             argv + 3, argv + argc);
  const double seconds = now() - start;
  if (!ok) {
    std::fprintf(stderr, "%s: cannot load %s\n", argv[1], argv[2]);
    return 1;
  }
  std::printf("{\"seconds\": %.9f, \"resident\": %ld}\n", seconds,
              resident() - before);
  return 0;
}
