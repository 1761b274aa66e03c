#include <nanobind/stl/string.h>

#include "handles.h"
#include "metadata.h"
#include "raising.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::BorrowedArena;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::Lifetime;
using executorch::extension::arenas::LoadOptions;
using executorch::extension::arenas::SessionOptions;
using executorch::runtime::Error;
using executorch::runtime::Result;

namespace {

/// A program with the Python object that its bytes are in.
struct ProgramOverBytes {
  PyObject* bytes;
  std::shared_ptr<const ProgramHandle::Program> program;

  ProgramOverBytes(const nb::bytes& object,
                   std::shared_ptr<const ProgramHandle::Program> over)
      : bytes(nb::object(object).release().ptr()), program(std::move(over)) {}
  ProgramOverBytes(const ProgramOverBytes&) = delete;
  ProgramOverBytes& operator=(const ProgramOverBytes&) = delete;
  ~ProgramOverBytes() {
    program.reset();
    if (Py_IsInitialized()) {  // wherever the last user lets it go
      const nb::gil_scoped_acquire gil;
      Py_DECREF(bytes);
    }
  }
};

LoadOptions options_of(const std::vector<nb::bytes>& data_files,
                       ProgramHandle::LoadMode mode, bool is_unshared,
                       ProgramHandle::Verification verification) {
  LoadOptions options;
  for (const nb::bytes& path : data_files) {
    options.data_files.emplace_back(path.c_str(), path.size());
  }
  options.mode = mode;
  options.is_unshared = is_unshared;
  options.verification = verification;
  return options;
}

[[noreturn]] void raise_load_error(Error error, const Finding& finding) {
  const std::string path = finding.path;
  if (error == Error::InvalidArgument && path == "is_unshared") {
    raise_wrong_use(
        std::string("shared_memory_ids: ") + finding.message +
        "; (2,) if it was exported with share_mutable_buffers=True, else ()");
  }
  if (path == "file") {  // which Python could open just before
    raise_runtime_error(path + ": " + finding.message);
  }
  if (finding.path[0] != '\0') {
    raise_invalid_program(finding);
  }
  raise_runtime_error("load_program", error);
}

bool is_scratch(const ArenaTable& table, std::string_view arena) {
  const Result<size_t> index = table.find_arena(arena);
  return index.ok() && table.arena(*index).lifetime == Lifetime::Scratch;
}

}  // namespace

ProgramHandle ProgramHandle::from_file(const nb::bytes& path,
                                       const std::vector<nb::bytes>& data_files,
                                       LoadMode mode, bool is_unshared,
                                       Verification verification) {
  const LoadOptions options =
      options_of(data_files, mode, is_unshared, verification);
  const std::string name(path.c_str(), path.size());
  Finding finding;
  Error error = Error::Ok;
  std::shared_ptr<const Program> program;
  {
    const nb::gil_scoped_release no_gil;
    auto loaded = Program::load(name.c_str(), &finding, options);
    error = loaded.error();
    program = loaded.ok() ? std::move(*loaded) : nullptr;
  }
  if (error != Error::Ok) {
    raise_load_error(error, finding);
  }
  return ProgramHandle(std::move(program));
}

ProgramHandle ProgramHandle::from_bytes(
    const nb::bytes& data, const std::vector<nb::bytes>& data_files,
    LoadMode mode, bool is_unshared, Verification verification) {
  Finding finding;
  auto loaded =
      Program::load(data.data(), data.size(), &finding,
                    options_of(data_files, mode, is_unshared, verification));
  if (!loaded.ok()) {
    raise_load_error(loaded.error(), finding);
  }
  const auto owner =
      std::make_shared<ProgramOverBytes>(data, std::move(*loaded));
  return ProgramHandle({owner, owner->program.get()});
}

std::vector<std::string> ProgramHandle::method_names() const {
  std::vector<std::string> names;
  const auto& table = program_->table();
  names.reserve(table.num_methods());
  for (size_t m = 0; m < table.num_methods(); ++m) {
    names.emplace_back(table.method_name(m));
  }
  return names;
}

nb::object ProgramHandle::metadata(const std::string& method) const {
  return metadata_of(program_, method);
}

uint64_t ProgramHandle::nbytes() const {
  const Result<size_t> size = program_->loader().size();
  if (!size.ok()) {
    raise_runtime_error("size of the program", size.error());
  }
  return *size;
}

nb::bytes ProgramHandle::read(uint64_t offset, size_t size) const {
  using executorch::runtime::DataLoader;
  const auto bytes = program_->loader().load(
      offset, size,
      DataLoader::SegmentInfo(DataLoader::SegmentInfo::Type::Program));
  if (!bytes.ok()) {
    raise_runtime_error("reading the program", bytes.error());
  }
  return nb::bytes(bytes->data(), bytes->size());
}

std::shared_ptr<SessionHandle> ProgramHandle::session(
    const nb::dict& arenas, bool keep,
    const std::shared_ptr<SessionHandle>& scratch_from,
    const nb::dict& backend_options,
    std::optional<size_t> debug_buffer_size) const {
  SessionHandle::Resources resources;
  auto& borrowed = resources.borrowed;
  std::vector<BorrowedArena> sources;
  for (const auto& [name, memory] : arenas) {
    borrowed.push_back(std::make_shared<const BorrowedMemory>(
        nb::cast<std::string>(name), memory));
    sources.push_back(
        {borrowed.back()->arena(), borrowed.back()->span(), keep});
  }
  SessionOptions options;
  options.borrowed = {sources.data(), sources.size()};
  resources.backend_options =
      std::make_shared<const BackendOptions>(backend_options);
  options.backend_options = &resources.backend_options->map();
  if (debug_buffer_size.has_value()) {
    resources.event_log = std::make_unique<EventLog>(*debug_buffer_size);
    options.event_tracer = resources.event_log->tracer();
  }
  auto mutex = std::make_shared<std::mutex>();
  if (scratch_from != nullptr) {
    options.scratch_from = scratch_from->session_.get();
    mutex = scratch_from->shared_mutex_;
    for (const auto& memory : scratch_from->resources_.borrowed) {
      if (is_scratch(program_->table(), memory->arena())) {
        borrowed.push_back(memory);
      }
    }
  }
  Finding finding;
  Error error = Error::Ok;
  std::unique_ptr<SessionHandle::Session> session;
  {
    const nb::gil_scoped_release no_gil;
    auto created = SessionHandle::Session::create(program_, options, &finding);
    error = created.error();
    session = created.ok() ? std::move(*created) : nullptr;
  }
  if (error != Error::Ok) {
    if (finding.path[0] != '\0') {
      raise_finding(error, finding);
    }
    raise_runtime_error("session", error);
  }
  return std::make_shared<SessionHandle>(std::move(session), std::move(mutex),
                                         std::move(resources));
}

}  // namespace pte_arenas
