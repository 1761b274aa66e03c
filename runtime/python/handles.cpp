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

[[noreturn]] void raise_method_error(const ArenaTable& table,
                                     const std::string& name, Error error,
                                     const Finding& finding) {
  if (finding.path[0] != '\0') {
    raise_finding(error, finding);
  }
  const Result<size_t> index = table.find_method(name);
  if (error == Error::InvalidProgram && index.ok()) {
    Finding finding;
    if (table.check_method(*index, &finding) != Error::Ok) {
      raise_invalid_program(finding);
    }
    raise_invalid_program(
        "execution_plan[" + std::to_string(*index) + "]",
        std::string("expected a method that ExecuTorch accepts but it found ") +
            executorch::runtime::to_string(error));
  }
  if (error == Error::InvalidState) {
    raise_runtime_error(
        name + ": loading failed with " + name_of(error) +
        ": data that the program keeps outside comes from load_program(..., "
        "data_path=...)");
  }
  raise_runtime_error(name + ": loading", error);
}

/// Which step of a call failed.
struct Failure {
  const char* step;
  Error error;
};

Failure run(LoadedMethod& method, const Signature& signature,
            const Inputs& inputs, std::shared_ptr<const void> owner,
            Outputs* outputs) {
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
  return {"copying the outputs",
          outputs->take(signature, method, std::move(owner))};
}

}  // namespace

Result<LoadedMethod*> SessionHandle::load_locked(const std::string& name,
                                                 Finding* finding) {
  if (LoadedMethod* const loaded = session_->loaded_method(name)) {
    return loaded;
  }
  Result<LoadedMethod*> method = session_->load_method(name, finding);
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
  Finding finding;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Result<LoadedMethod*> method = load_locked(name, &finding);
    error = method.error();
    if (method.ok() && signature == nullptr) {
      signature = std::make_shared<const Signature>(**method, table);
      if (!signature->unreachable.empty()) {
        error = session_->unload_method(name);
      }
    }
  }
  if (error != Error::Ok) {
    raise_method_error(table, name, error, finding);
  }
  if (!signature->unreachable.empty()) {
    raise_wrong_use(name + ": expected " + signature->unreachable +
                    ", which Python cannot reach: export it without "
                    "skip_h2d_for_method_inputs and "
                    "skip_d2h_for_method_outputs, or run it from C++");
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

nb::object SessionHandle::take_etdump() {
  if (resources_.event_log == nullptr) {
    return nb::none();
  }
  EventLog::Dump dump;
  std::string values;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    dump = resources_.event_log->take();
    if (dump.debug_size > 0) {
      values.assign(reinterpret_cast<const char*>(dump.debug_bytes),
                    dump.debug_size);
    }
  }
  if (dump.bytes == nullptr) {
    return nb::none();
  }
  return nb::make_tuple(nb::bytes(dump.bytes.get(), dump.size),
                        nb::bytes(values.data(), values.size()), dump.is_cut);
}

nb::list SessionHandle::execute(const std::string& name, nb::handle inputs,
                                bool copy_outputs) {
  const auto known = signatures_.find(name);
  const SharedSignature signature =
      known == signatures_.end() ? load(name) : known->second;
  return execute(*signature, inputs, copy_outputs, IfUnloaded::Load);
}

std::shared_ptr<const void> SessionHandle::owner_of(LoadedMethod& method) {
  // Destroyed from the last to the first: the method before what it needs.
  using Owner =
      std::pair<std::shared_ptr<SessionHandle>, std::shared_ptr<LoadedMethod>>;
  return std::make_shared<Owner>(shared_from_this(), method.shared_from_this());
}

nb::list SessionHandle::execute(const Signature& signature, nb::handle values,
                                bool copy_outputs, IfUnloaded if_unloaded) {
  const Inputs inputs(signature, values);
  Outputs outputs(spare_);
  Error load_error = Error::Ok;
  Finding finding;
  Failure failure{"", Error::Ok};
  bool is_loaded = true;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    LoadedMethod* method = session_->loaded_method(signature.method);
    if (method == nullptr && if_unloaded == IfUnloaded::Load) {
      const Result<LoadedMethod*> loaded =
          load_locked(signature.method, &finding);
      load_error = loaded.error();
      method = loaded.ok() ? *loaded : nullptr;
    }
    is_loaded = method != nullptr;
    if (is_loaded) {
      const auto use = session_->use();
      failure = use.ok()
                    ? run(*method, signature, inputs,
                          copy_outputs ? nullptr : owner_of(*method), &outputs)
                    : Failure{"execution", Error::InvalidState};
    }
  }
  if (load_error != Error::Ok) {
    raise_method_error(session_->program()->table(), signature.method,
                       load_error, finding);
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

nb::list MethodHandle::execute(nb::handle inputs, bool copy_outputs) {
  return session_->execute(*signature_, inputs, copy_outputs,
                           SessionHandle::IfUnloaded::Refuse);
}

}  // namespace pte_arenas
