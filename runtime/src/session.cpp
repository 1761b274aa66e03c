#include <executorch/extension/arenas/session.h>

#include <utility>

#include "initial_values.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::InitialValues;
using runtime::Error;
using runtime::EValue;
using runtime::Result;
using runtime::Span;

namespace {

// Names of the XNNPACK delegate, checked against ExecuTorch 1.5.1.
constexpr char kXnnpackBackend[] = "XnnpackBackend";

}  // namespace

Session::Session(std::shared_ptr<const ArenaProgram> program, ArenaPool pool,
                 const SessionOptions& options)
    : program_(std::move(program)), pool_(std::move(pool)), options_(options) {
  options_.borrowed = {};
  if (options.backend_options != nullptr) {
    backend_options_ = *options.backend_options;
  }
  if (options.xnnpack_weight_cache &&
      !backend_options_.has_options(kXnnpackBackend) &&
      xnnpack_options_.set_option("weight_cache_enabled", true) == Error::Ok) {
    // Fails only if the caller fills the map, and then it is an optimisation
    // less.
    (void)backend_options_.set_options(kXnnpackBackend,
                                       xnnpack_options_.view());
  }
}

Result<std::unique_ptr<Session>> Session::create(
    std::shared_ptr<const ArenaProgram> program, const SessionOptions& options,
    Finding* finding) {
  Result<ArenaPool> pool = ArenaPool::create(
      program->table(), {options.borrowed, /*scratch_from=*/nullptr}, finding);
  if (!pool.ok()) {
    return pool.error();
  }
  const Error error =
      InitialValues(program->table(), program->loader()).write(&*pool, finding);
  if (error != Error::Ok) {
    return error;
  }
  return std::unique_ptr<Session>(
      new Session(std::move(program), std::move(*pool), options));
}

Result<LoadedMethod*> Session::load_method(const std::string& name) {
  const Use use(in_use_);
  return use.ok() ? load_in_use(name) : Error::InvalidState;
}

Result<LoadedMethod*> Session::load_in_use(const std::string& name) {
  if (LoadedMethod* const loaded = loaded_method(name)) {
    return loaded;
  }
  Result<std::unique_ptr<LoadedMethod>> method =
      LoadedMethod::load(*program_, pool_, name.c_str(), &backend_options_);
  if (!method.ok()) {
    return method.error();
  }
  return methods_.emplace(name, std::move(*method)).first->second.get();
}

Error Session::unload_method(const std::string& name) {
  const Use use(in_use_);
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<size_t> index = program_->table().find_method(name);
  if (!index.ok()) {
    return index.error();
  }
  num_unloads_ += methods_.erase(name);
  return Error::Ok;
}

LoadedMethod* Session::loaded_method(const std::string& name) const {
  const auto found = methods_.find(name);
  return found == methods_.end() ? nullptr : found->second.get();
}

Error Session::execute(LoadedMethod& method, Span<const EValue> inputs,
                       Span<EValue> outputs) {
  const Use use(in_use_);
  return use.ok() ? execute_in_use(method, inputs, outputs)
                  : Error::InvalidState;
}

Error Session::execute_in_use(LoadedMethod& loaded, Span<const EValue> inputs,
                              Span<EValue> outputs) {
  LoadedMethod::Method& method = loaded.method();
  if (inputs.size() != method.inputs_size() ||
      outputs.size() < method.outputs_size()) {
    return Error::InvalidArgument;
  }
  // Every input every time: planned inputs share memory with activations.
  for (size_t i = 0; i < inputs.size(); ++i) {
    ET_CHECK_OK_OR_RETURN_ERROR(method.set_input(inputs[i], i));
  }
  ET_CHECK_OK_OR_RETURN_ERROR(method.execute());
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    outputs[i] = method.get_output(i);
  }
  return Error::Ok;
}

Result<std::vector<EValue>> Session::execute(const std::string& name,
                                             Span<const EValue> inputs) {
  const Use use(in_use_);
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<LoadedMethod*> method = load_in_use(name);
  if (!method.ok()) {
    return method.error();
  }
  std::vector<EValue> outputs((*method)->method().outputs_size());
  const Error error =
      execute_in_use(**method, inputs, {outputs.data(), outputs.size()});
  if (error != Error::Ok) {
    return error;
  }
  return outputs;
}

Error Session::reset() {
  const Use use(in_use_);
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const InitialValues values(program_->table(), program_->loader());
  for (size_t a = 0; a < program_->table().num_arenas(); ++a) {
    ET_CHECK_OK_OR_RETURN_ERROR(values.reset(&pool_, a));
  }
  return Error::Ok;
}

Error Session::reset(std::string_view arena) {
  const Use use(in_use_);
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<size_t> a = program_->table().find_arena(arena);
  if (!a.ok()) {
    return a.error();
  }
  return InitialValues(program_->table(), program_->loader()).reset(&pool_, *a);
}

Error Session::reset(std::string_view arena, std::string_view slot) {
  const Use use(in_use_);
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<size_t> a = program_->table().find_arena(arena);
  if (!a.ok()) {
    return a.error();
  }
  const Result<size_t> s = program_->table().find_slot(*a, slot);
  if (!s.ok()) {
    return s.error();
  }
  return InitialValues(program_->table(), program_->loader())
      .reset(&pool_, *a, *s);
}

Result<Span<uint8_t>> Session::arena(std::string_view name) const {
  const Result<size_t> index = program_->table().find_arena(name);
  if (!index.ok()) {
    return index.error();
  }
  return Span<uint8_t>(pool_.spans()[*index]);
}

Result<Span<uint8_t>> Session::slot(std::string_view arena,
                                    std::string_view name) const {
  const Result<size_t> a = program_->table().find_arena(arena);
  if (!a.ok()) {
    return a.error();
  }
  const Result<size_t> s = program_->table().find_slot(*a, name);
  if (!s.ok()) {
    return s.error();
  }
  const SlotInfo info = program_->table().slot(*a, *s);
  return Span<uint8_t>(pool_.spans()[*a].data() + info.offset, info.nbytes);
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
