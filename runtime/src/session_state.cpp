// What a session does with its whole state: snapshot, restore, fork.

#include <executorch/extension/arenas/session.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Result;
using runtime::Span;

namespace {

Span<const uint8_t> bytes_of(Span<uint8_t> span) {
  return {span.data(), span.size()};
}

Error read_block(const MemoryBlock& from, ZeroedMemory* to) {
  if (const ZeroedMemory* const pages = from.owned_host()) {
    to->assign(*pages);
    return Error::Ok;
  }
  return from.read(0, to->span());
}

Error write_block(const ZeroedMemory& from, MemoryBlock* to) {
  if (ZeroedMemory* const pages = to->owned_host()) {
    pages->assign(from);
    return Error::Ok;
  }
  return to->write(0, bytes_of(from.span()));
}

/// Between blocks of one device, whose copy functions know the host only.
Error copy_staged(const MemoryBlock& from, MemoryBlock* to) {
  const size_t size = from.span().size();
  const Result<ZeroedMemory> staging =
      ZeroedMemory::allocate(std::min(size, MemoryBlock::kStagingBytes), 1);
  if (!staging.ok()) {
    return staging.error();
  }
  for (size_t done = 0; done < size;) {
    const Span<uint8_t> step(staging->span().data(),
                             std::min(size - done, MemoryBlock::kStagingBytes));
    ET_CHECK_OK_OR_RETURN_ERROR(from.read(done, step));
    ET_CHECK_OK_OR_RETURN_ERROR(to->write(done, bytes_of(step)));
    done += step.size();
  }
  return Error::Ok;
}

Error fork_block(MemoryBlock* from, bool copy_on_write, MemoryBlock* to) {
  ZeroedMemory* const pages = from->owned_host();
  ZeroedMemory* const forked = to->owned_host();
  if (pages != nullptr && forked != nullptr) {
    copy_on_write ? pages->share_with(forked) : forked->assign(*pages);
    return Error::Ok;
  }
  return from->is_on_host() ? to->write(0, bytes_of(from->span()))
                            : copy_staged(*from, to);
}

bool is_state(const ArenaTable& table, size_t arena) {
  return table.arena(arena).lifetime == Lifetime::State;
}

}  // namespace

Result<Snapshot> Session::snapshot() {
  Snapshot snapshot;
  const Error error = this->snapshot(&snapshot);
  if (error != Error::Ok) {
    return error;
  }
  return snapshot;
}

Error Session::snapshot(Snapshot* into) {
  const Use use = this->use();
  if (!use.ok()) {
    return Error::InvalidState;
  }
  if (into->program_ != program_) {
    Result<Snapshot> fresh = Snapshot::create(program_);
    if (!fresh.ok()) {
      return fresh.error();
    }
    *into = std::move(*fresh);
  }
  for (size_t a = 0; a < into->memory_.size(); ++a) {
    if (is_state(program_->table(), a)) {
      ET_CHECK_OK_OR_RETURN_ERROR(
          read_block(pool_.block(a), &into->memory_[a]));
    }
  }
  return Error::Ok;
}

Error Session::restore(const Snapshot& snapshot) {
  const Use use = this->use();
  if (!use.ok()) {
    return Error::InvalidState;
  }
  if (snapshot.program_ != program_) {
    return Error::InvalidArgument;
  }
  for (size_t a = 0; a < snapshot.memory_.size(); ++a) {
    if (is_state(program_->table(), a)) {
      ET_CHECK_OK_OR_RETURN_ERROR(
          write_block(snapshot.memory_[a], &pool_.block(a)));
    }
  }
  return Error::Ok;
}

Error Session::restore(const Snapshot& snapshot,
                       Span<const std::string_view> arenas) {
  const Use use = this->use();
  if (!use.ok()) {
    return Error::InvalidState;
  }
  if (snapshot.program_ != program_) {
    return Error::InvalidArgument;
  }
  for (const std::string_view name : arenas) {
    ET_CHECK_OK_OR_RETURN_ERROR(snapshot.arena(name).error());
  }
  for (const std::string_view name : arenas) {
    const size_t a = *program_->table().find_arena(name);
    ET_CHECK_OK_OR_RETURN_ERROR(
        write_block(snapshot.memory_[a], &pool_.block(a)));
  }
  return Error::Ok;
}

Result<std::unique_ptr<Session>> Session::fork(const ForkOptions& options,
                                               Finding* finding) {
  const Use use = this->use();
  if (!use.ok()) {
    return Error::InvalidState;
  }
  const ArenaTable& table = program_->table();
  Result<ArenaPool> pool = ArenaPool::create(table, {}, finding);
  if (!pool.ok()) {
    return pool.error();
  }
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    if (is_state(table, a)) {
      ET_CHECK_OK_OR_RETURN_ERROR(
          fork_block(&pool_.block(a), options.copy_on_write, &pool->block(a)));
    }
  }
  return std::unique_ptr<Session>(
      new Session(program_, std::move(*pool),
                  std::make_shared<std::atomic<bool>>(false), options_));
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
