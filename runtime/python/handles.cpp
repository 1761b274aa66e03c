#include "handles.h"

#include <nanobind/stl/string.h>

#include "inputs.h"
#include "metadata.h"
#include "outputs.h"
#include "raising.h"
#include "torch_exchange.h"

namespace nb = nanobind;

namespace pte_arenas {

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
  if (error == Error::InvalidProgram && finding.path[0] != '\0') {
    raise_invalid_program(finding);
  }
  raise_runtime_error("load_program", error);
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
  return {"copying the outputs", outputs->take(method.method())};
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

std::shared_ptr<SessionHandle> ProgramHandle::session() const {
  Error error = Error::Ok;
  std::unique_ptr<SessionHandle::Session> session;
  {
    const nb::gil_scoped_release no_gil;
    auto created = SessionHandle::Session::create(program_);
    error = created.error();
    session = created.ok() ? std::move(*created) : nullptr;
  }
  if (error != Error::Ok) {
    raise_runtime_error("session", error);
  }
  return std::make_shared<SessionHandle>(std::move(session));
}

MethodHandle SessionHandle::load_method(const std::string& name) {
  Error error = Error::Ok;
  std::shared_ptr<const Signature> signature;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Result<LoadedMethod*> method = session_->load_method(name);
    error = method.error();
    if (method.ok()) {
      signature = std::make_shared<const Signature>(**method);
    }
  }
  if (error != Error::Ok) {
    raise_runtime_error(name + ": loading", error);
  }
  return MethodHandle(shared_from_this(), std::move(signature));
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

nb::object MethodHandle::metadata() const {
  return metadata_of(session_->session_->program(), name());
}

nb::list MethodHandle::execute(nb::handle values) {
  const Inputs inputs(*signature_, values);
  Outputs outputs;
  Failure failure{"", Error::Ok};
  bool is_loaded = true;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(session_->mutex_);
    SessionHandle::Session& session = *session_->session_;
    if (method_ == nullptr || num_unloads_ != session.num_unloads()) {
      method_ = session.loaded_method(signature_->method);
      num_unloads_ = session.num_unloads();
    }
    is_loaded = method_ != nullptr;
    if (is_loaded) {
      const auto use = session.use();
      failure = use.ok() ? run(*method_, *signature_, inputs, &outputs)
                         : Failure{"execution", Error::InvalidState};
    }
  }
  if (!is_loaded) {
    raise_wrong_use(name() +
                    ": expected a loaded method but found that it was "
                    "unloaded: load it again with load_method");
  }
  if (failure.error != Error::Ok) {
    raise_runtime_error(name() + ": " + failure.step, failure.error);
  }
  return outputs.to_python();
}

}  // namespace pte_arenas
