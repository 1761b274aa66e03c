#include "handles.h"

#include <nanobind/stl/string.h>

#include "inputs.h"
#include "metadata.h"
#include "outputs.h"
#include "raising.h"
#include "torch_exchange.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::LoadedMethod;
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

[[noreturn]] void raise_load_error(Error error, const Finding& finding) {
  if (finding.path[0] != '\0') {
    raise_invalid_program(finding);
  }
  raise_runtime_error("load_program", error);
}

[[noreturn]] void raise_session_error(Error error, const Finding& finding) {
  const std::string sentence =
      std::string(finding.path) + ": " + finding.message;
  if (finding.path[0] == '\0') {
    raise_runtime_error("session", error);
  }
  if (error == Error::MemoryAllocationFailed) {
    raise_memory_error(sentence);
  }
  if (error == Error::NotSupported) {
    raise_runtime_error(sentence);
  }
  raise_invalid_program(finding);
}

[[noreturn]] void raise_method_error(const ArenaTable& table,
                                     const std::string& name, Error error) {
  const Result<size_t> index = table.find_method(name);
  if (error == Error::InvalidProgram && index.ok()) {
    raise_invalid_program(
        "execution_plan[" + std::to_string(*index) + "]",
        std::string("expected a method that ExecuTorch accepts but it found ") +
            executorch::runtime::to_string(error));
  }
  raise_runtime_error(name + ": loading", error);
}

/// Which step of a call failed.
struct Failure {
  const char* step;
  Error error;
};

Failure run(LoadedMethod& method, const Signature& signature,
            const Inputs& inputs, Outputs* outputs) {
  Error error = inputs.set(method.method());
  if (error != Error::Ok) {
    return {"setting the inputs", error};
  }
  error = outputs->place(signature, method.method());
  if (error != Error::Ok) {
    return {"placing the outputs", error};
  }
  error = method.method().execute();
  if (error != Error::Ok) {
    return {"execution", error};
  }
  return {"copying the outputs", outputs->take(signature, method.method())};
}

}  // namespace

ProgramHandle ProgramHandle::from_file(const nb::bytes& path) {
  const std::string name(path.c_str(), path.size());
  Finding finding;
  Error error = Error::Ok;
  std::shared_ptr<const Program> program;
  {
    const nb::gil_scoped_release no_gil;
    auto loaded =
        Program::load(name.c_str(), Program::LoadMode::Mmap, &finding);
    error = loaded.error();
    program = loaded.ok() ? std::move(*loaded) : nullptr;
  }
  if (error != Error::Ok) {
    raise_load_error(error, finding);
  }
  return ProgramHandle(std::move(program));
}

ProgramHandle ProgramHandle::from_bytes(const nb::bytes& data) {
  Finding finding;
  auto loaded = Program::load(data.data(), data.size(), &finding);
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

std::shared_ptr<SessionHandle> ProgramHandle::session() const {
  Finding finding;
  Error error = Error::Ok;
  std::unique_ptr<SessionHandle::Session> session;
  {
    const nb::gil_scoped_release no_gil;
    auto created = SessionHandle::Session::create(program_, {}, &finding);
    error = created.error();
    session = created.ok() ? std::move(*created) : nullptr;
  }
  if (error != Error::Ok) {
    raise_session_error(error, finding);
  }
  return std::make_shared<SessionHandle>(std::move(session));
}

Result<LoadedMethod*> SessionHandle::load_locked(const std::string& name) {
  if (LoadedMethod* const loaded = session_->loaded_method(name)) {
    return loaded;
  }
  Result<LoadedMethod*> method = session_->load_method(name);
  if (method.ok()) {
    take_over_inputs((*method)->method());
  }
  return method;
}

SessionHandle::SharedSignature SessionHandle::load(const std::string& name) {
  const ArenaTable& table = session_->program()->table();
  const auto known = signatures_.find(name);
  SharedSignature signature =
      known == signatures_.end() ? nullptr : known->second;
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Result<LoadedMethod*> method = load_locked(name);
    error = method.error();
    if (method.ok() && signature == nullptr) {
      signature = std::make_shared<const Signature>(**method, table);
    }
  }
  if (error != Error::Ok) {
    raise_method_error(table, name, error);
  }
  return signatures_.try_emplace(name, std::move(signature)).first->second;
}

MethodHandle SessionHandle::load_method(const std::string& name) {
  return MethodHandle(shared_from_this(), load(name));
}

std::vector<std::string> SessionHandle::loaded_methods() {
  const nb::gil_scoped_release no_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  const ArenaTable& table = session_->program()->table();
  std::vector<std::string> names;
  for (size_t m = 0; m < table.num_methods(); ++m) {
    std::string name(table.method_name(m));
    if (session_->loaded_method(name) != nullptr) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

void SessionHandle::unload_method(const std::string& name) {
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    error = session_->unload_method(name);
  }
  if (error != Error::Ok) {
    raise_runtime_error(name + ": unloading", error);
  }
}

void SessionHandle::reset(std::optional<std::string_view> arena,
                          std::optional<std::string_view> slot) {
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    error = !arena.has_value()  ? session_->reset()
            : !slot.has_value() ? session_->reset(*arena)
                                : session_->reset(*arena, *slot);
  }
  if (error != Error::Ok) {
    raise_runtime_error("reset", error);
  }
}

nb::list SessionHandle::execute(const std::string& name, nb::handle inputs) {
  const auto known = signatures_.find(name);
  const SharedSignature signature =
      known == signatures_.end() ? load(name) : known->second;
  return execute(*signature, inputs, IfUnloaded::Load);
}

nb::list SessionHandle::execute(const Signature& signature, nb::handle values,
                                IfUnloaded if_unloaded) {
  const Inputs inputs(signature, values);
  Outputs outputs;
  Error load_error = Error::Ok;
  Failure failure{"", Error::Ok};
  bool is_loaded = true;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    LoadedMethod* method = session_->loaded_method(signature.method);
    if (method == nullptr && if_unloaded == IfUnloaded::Load) {
      const Result<LoadedMethod*> loaded = load_locked(signature.method);
      load_error = loaded.error();
      method = loaded.ok() ? *loaded : nullptr;
    }
    is_loaded = method != nullptr;
    if (is_loaded) {
      const auto use = session_->use();
      failure = use.ok() ? run(*method, signature, inputs, &outputs)
                         : Failure{"execution", Error::InvalidState};
    }
  }
  if (load_error != Error::Ok) {
    raise_method_error(session_->program()->table(), signature.method,
                       load_error);
  }
  if (!is_loaded) {
    raise_wrong_use(signature.method +
                    ": expected a loaded method but found that it was "
                    "unloaded: load it again with load_method");
  }
  if (failure.error != Error::Ok) {
    raise_runtime_error(signature.method + ": " + failure.step, failure.error);
  }
  outputs.write_back(inputs);
  return outputs.to_python();
}

nb::object MethodHandle::metadata() const {
  return metadata_of(session_->session_->program(), name());
}

nb::list MethodHandle::execute(nb::handle inputs) {
  return session_->execute(*signature_, inputs,
                           SessionHandle::IfUnloaded::Refuse);
}

}  // namespace pte_arenas
