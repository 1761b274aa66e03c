#include <executorch/extension/arenas/session.h>

#include <utility>

#include "initial_values.h"
#include "session_options.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::InitialValues;
using internal::kXnnpackBackend;
using runtime::Error;
using runtime::EValue;
using runtime::Result;
using runtime::Span;

namespace {

struct SlotIndex {
  size_t arena;
  size_t slot;
};

Result<SlotIndex> find_slot(const ArenaTable& table, std::string_view arena,
                            std::string_view slot) {
  const Result<size_t> a = table.find_arena(arena);
  if (!a.ok()) {
    return a.error();
  }
  const Result<size_t> s = table.find_slot(*a, slot);
  if (!s.ok()) {
    return s.error();
  }
  return SlotIndex{*a, *s};
}

/// Calls `act` with where a slot is, if the session is the caller's.
template <class Do>
Error with_slot(const Session::Use& use, const ArenaTable& table,
                std::string_view arena, std::string_view slot, const Do& act) {
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<SlotIndex> found = find_slot(table, arena, slot);
  return found.ok() ? act(*found) : found.error();
}

}  // namespace

Session::Session(std::shared_ptr<const ArenaProgram> program, ArenaPool pool,
                 std::shared_ptr<std::atomic<bool>> in_use,
                 const SessionOptions& options)
    : program_(std::move(program)),
      pool_(std::move(pool)),
      options_(options),
      event_tracer_(options.event_tracer),
      in_use_(std::move(in_use)) {
  options_.borrowed = {};
  options_.scratch_from = nullptr;
  options_.event_tracer = nullptr;
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
  if (program == nullptr) {
    return Error::InvalidArgument;
  }
  Error error = internal::check_options(*program, options, finding);
  if (error != Error::Ok) {
    return error;
  }
  const Session* const other = options.scratch_from;
  Result<ArenaPool> pool = ArenaPool::create(
      program->table(),
      {options.borrowed, other == nullptr ? nullptr : &other->pool_}, finding);
  if (!pool.ok()) {
    return pool.error();
  }
  error =
      InitialValues(program->table(), program->loader()).write(&*pool, finding);
  if (error != Error::Ok) {
    return error;
  }
  return std::unique_ptr<Session>(
      new Session(std::move(program), std::move(*pool),
                  other == nullptr ? std::make_shared<std::atomic<bool>>(false)
                                   : other->in_use_,
                  options));
}

Result<LoadedMethod*> Session::load_method(const std::string& name,
                                           Finding* finding) {
  const Use use = this->use();
  return use.ok() ? load_in_use(name, finding) : Error::InvalidState;
}

Result<LoadedMethod*> Session::load_in_use(const std::string& name,
                                           Finding* finding) {
  if (LoadedMethod* const loaded = loaded_method(name)) {
    return loaded;
  }
  Result<std::unique_ptr<LoadedMethod>> method =
      LoadedMethod::load(*program_, pool_, name.c_str(), &backend_options_,
                         event_tracer_, finding);
  if (!method.ok()) {
    return method.error();
  }
  return methods_.emplace(name, std::move(*method)).first->second.get();
}

Error Session::unload_method(const std::string& name) {
  const Use use = this->use();
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
  if (&method.arenas() != &pool_) {
    return Error::InvalidArgument;
  }
  const Use use = this->use();
  return use.ok() ? execute_in_use(method, inputs, outputs)
                  : Error::InvalidState;
}

Error Session::execute_in_use(LoadedMethod& loaded, Span<const EValue> inputs,
                              Span<EValue> outputs) {
  LoadedMethod::Method& method = loaded.method();
  if (inputs.size() != loaded.num_inputs() ||
      outputs.size() < loaded.num_outputs()) {
    return Error::InvalidArgument;
  }
  // Every input every time: planned inputs share memory with activations.
  for (size_t i = 0; i < inputs.size(); ++i) {
    ET_CHECK_OK_OR_RETURN_ERROR(method.set_input(inputs[i], i));
  }
  ET_CHECK_OK_OR_RETURN_ERROR(method.execute());
  for (size_t i = 0; i < loaded.num_outputs(); ++i) {
    outputs[i] = method.get_output(i);
  }
  return Error::Ok;
}

Result<std::vector<EValue>> Session::execute(const std::string& name,
                                             Span<const EValue> inputs) {
  const Use use = this->use();
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const Result<LoadedMethod*> method = load_in_use(name, /*finding=*/nullptr);
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
  const Use use = this->use();
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
  const Use use = this->use();
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
  return with_slot(use(), program_->table(), arena, slot, [&](SlotIndex at) {
    return InitialValues(program_->table(), program_->loader())
        .reset(&pool_, at.arena, at.slot);
  });
}

Error Session::copy_out(std::string_view arena, std::string_view slot,
                        Span<uint8_t> to) {
  return with_slot(use(), program_->table(), arena, slot, [&](SlotIndex at) {
    const SlotInfo info = program_->table().slot(at.arena, at.slot);
    return to.size() == info.nbytes
               ? pool_.block(at.arena).read(info.offset, to)
               : Error::InvalidArgument;
  });
}

Error Session::copy_in(std::string_view arena, std::string_view slot,
                       Span<const uint8_t> from) {
  return with_slot(use(), program_->table(), arena, slot, [&](SlotIndex at) {
    const SlotInfo info = program_->table().slot(at.arena, at.slot);
    return from.size() == info.nbytes
               ? pool_.block(at.arena).write(info.offset, from)
               : Error::InvalidArgument;
  });
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
  const Result<SlotIndex> found = find_slot(program_->table(), arena, name);
  if (!found.ok()) {
    return found.error();
  }
  const SlotInfo info = program_->table().slot(found->arena, found->slot);
  return Span<uint8_t>(pool_.spans()[found->arena].data() + info.offset,
                       info.nbytes);
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
