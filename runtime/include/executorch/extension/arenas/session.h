#pragma once

#include <executorch/extension/arenas/arena_pool.h>
#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/loaded_method.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/extension/arenas/snapshot.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

class Session;

struct SessionOptions {
  /// Lets XNNPACK methods share packed weights. Without it every load of a
  /// method makes its own copy of them.
  bool xnnpack_weight_cache = true;

  /// Options for delegates when methods are loaded, or null. What is given for
  /// XNNPACK replaces the weight cache above. Must outlive the session and its
  /// forks.
  const runtime::LoadBackendOptionsMap* backend_options = nullptr;

  /// What loading and execution are logged to, such as an `ETDumpGen`, or null.
  /// Must outlive the session, and no other session may use it meanwhile.
  runtime::EventTracer* event_tracer = nullptr;

  /// Memory of the caller's for some or all arenas. It must outlive the
  /// session; the list itself only the call. Where a method with an XNNPACK
  /// delegate uses an arena, `ZeroedMemory::kReadableBehind` bytes more.
  runtime::Span<const BorrowedArena> borrowed;

  /// A session of the same program, the scratch arenas of which the new one
  /// shares; or null. The two then count as one session where calls must not
  /// overlap. Either may end first.
  const Session* scratch_from = nullptr;
};

struct ForkOptions {
  /// Copies a page only when one of the sessions writes it, where the system
  /// can (Linux); otherwise all that was ever written is copied by `fork()`.
  /// Makes forks cheap and the first writes after them dearer.
  bool copy_on_write = false;
};

/**
 * One set of a program's arenas, and the methods loaded over them.
 *
 * State lives from `create()` or `reset()` to the end of the session; loading,
 * unloading and reloading a method never writes it. Sessions of one program are
 * independent and may run in parallel. One session is externally synchronised:
 * calls that overlap on it, or on sessions that share scratch arenas, return
 * Error::InvalidState.
 */
class ET_ARENAS_API Session final {
 public:
  /**
   * Allocates or borrows the arenas and writes their initial values.
   *
   * On failure nothing stays allocated, and borrowed memory to be kept is as it
   * was.
   *
   * @param[in] program Shared with other sessions.
   * @param[in] options See there.
   * @param[out] finding If not null, filled when memory or initial values that
   *     the program asks for are not there, or what is borrowed does not fit.
   *
   * @retval Error::InvalidArgument What is borrowed does not fit, or there is
   * no program.
   * @retval Error::NotSupported No allocator is registered for the device of an
   *     arena.
   * @retval Error::MemoryAllocationFailed There is no memory for an arena.
   * @returns Other errors of the data loader and of devices.
   */
  static runtime::Result<std::unique_ptr<Session>> create(
      std::shared_ptr<const ArenaProgram> program,
      const SessionOptions& options = {}, Finding* finding = nullptr);

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /**
   * Loads a method, unless it is loaded.
   *
   * @param[out] finding If not null, filled when there is no memory for a
   *     private buffer.
   *
   * @returns The method, valid until it is unloaded or the session ends.
   * @retval Error::NotFound No method has this name.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Other errors of `Program::load_method()`.
   */
  runtime::Result<LoadedMethod*> load_method(const std::string& name,
                                             Finding* finding = nullptr);

  /**
   * Frees a method and the memory that is its own; arenas stay as they are.
   * State that the method kept in private memory is lost.
   *
   * @retval Error::Ok Also if the method was not loaded.
   * @retval Error::NotFound No method has this name.
   * @retval Error::InvalidState Another call uses the session.
   */
  runtime::Error unload_method(const std::string& name);

  /// The method if it is loaded, else null.
  LoadedMethod* loaded_method(const std::string& name) const;

  /// Counts calls that unloaded a method: as long as it stays the same, so do
  /// the pointers that `load_method()` gave out.
  uint64_t num_unloads() const { return num_unloads_; }

  /**
   * Sets the inputs of a method, executes it and gets its outputs.
   *
   * A method may mutate inputs (`ArenaTable::mutates_input()`). An input that
   * the program has no memory for is then changed in the caller's tensor. One
   * that it has memory for was copied there: the method changes its copy, which
   * `Method::get_input()` holds until the session's next call.
   *
   * @param[in] method Of this session.
   * @param[in] inputs One value for each input.
   * @param[out] outputs Room for as many values as the method has outputs.
   *     Tensors among them point into the session's memory and are valid until
   *     its next call.
   *
   * @retval Error::InvalidArgument A number or type does not fit, or the method
   *     is another session's.
   * @retval Error::NotSupported A shape does not fit.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Other errors of `Method::execute()`.
   */
  runtime::Error execute(LoadedMethod& method,
                         runtime::Span<const runtime::EValue> inputs,
                         runtime::Span<runtime::EValue> outputs);

  /// The same by name; loads the method if need be.
  runtime::Result<std::vector<runtime::EValue>> execute(
      const std::string& method, runtime::Span<const runtime::EValue> inputs);

  /**
   * Gives arenas their initial values again.
   *
   * @retval Error::NotFound No arena or slot has this name.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Other errors of the data loader.
   */
  runtime::Error reset();
  runtime::Error reset(std::string_view arena);
  runtime::Error reset(std::string_view arena, std::string_view slot);

  /**
   * Copies the state. Scratch arenas and memory that is private to methods are
   * no part of it.
   *
   * @retval Error::MemoryAllocationFailed The system has no memory for it.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Errors of a device's copy function.
   */
  runtime::Result<Snapshot> snapshot();

  /**
   * The same into the memory of a snapshot of the same program, such as one
   * that is not needed any more.
   *
   * @param[in,out] into A snapshot of this program; any other becomes a new one
   *     of it. Stays as it was unless a device's copy function fails, which
   *     leaves some of its arenas copied.
   */
  runtime::Error snapshot(Snapshot* into);

  /**
   * Makes the state what it was at a snapshot, of this session or another one
   * of the program.
   *
   * @param[in] snapshot See there.
   *
   * @retval Error::InvalidArgument The snapshot is of another program. Nothing
   *     changes.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Errors of a device's copy function, after which arenas may be
   *     partly restored.
   */
  runtime::Error restore(const Snapshot& snapshot);
  /// The same for some state arenas only, by their names.
  /// @retval Error::NotFound No state arena has this name. Nothing changes.
  runtime::Error restore(const Snapshot& snapshot,
                         runtime::Span<const std::string_view> arenas);

  /**
   * Makes a session of the same program whose state equals this one's. From
   * then on they are independent, also in children of `fork(2)`.
   *
   * The new session owns its arenas, also where this one borrowed them. It
   * loads methods afresh: what a method keeps in private memory starts from its
   * initial value there. It has the options of this session, but no tracer.
   *
   * @param[in] options See there.
   * @param[out] finding If not null, filled when there is no memory.
   *
   * @retval Error::MemoryAllocationFailed The system has no memory for an
   *     arena.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Errors of a device's allocator.
   */
  runtime::Result<std::unique_ptr<Session>> fork(
      const ForkOptions& options = {}, Finding* finding = nullptr);

  /**
   * Copies a slot to the host, from wherever its arena is.
   *
   * @param[out] to As large as the slot.
   *
   * @retval Error::NotFound No arena or slot has this name.
   * @retval Error::InvalidArgument `to` has another size.
   * @retval Error::InvalidState Another call uses the session.
   * @returns Other errors of the device.
   */
  runtime::Error copy_out(std::string_view arena, std::string_view slot,
                          runtime::Span<uint8_t> to);

  /// Copies bytes of the host into a slot; errors as `copy_out()`.
  runtime::Error copy_in(std::string_view arena, std::string_view slot,
                         runtime::Span<const uint8_t> from);

  /// The bytes of an arena, valid as long as the session. If it is on a device,
  /// so are they: see `copy_out()`.
  /// @retval Error::NotFound No arena has this name.
  runtime::Result<runtime::Span<uint8_t>> arena(std::string_view name) const;

  /// The bytes of a slot, as those of an arena.
  /// @retval Error::NotFound No arena or slot has this name.
  runtime::Result<runtime::Span<uint8_t>> slot(std::string_view arena,
                                               std::string_view name) const;

  /// Shared with other sessions.
  const std::shared_ptr<const ArenaProgram>& program() const {
    return program_;
  }

  /// The right to use the session, taken by every call above.
  class Use final {
   public:
    explicit Use(std::atomic<bool>& in_use)
        : in_use_(in_use.exchange(true, std::memory_order_acquire) ? nullptr
                                                                   : &in_use) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (in_use_ != nullptr) {
        in_use_->store(false, std::memory_order_release);
      }
    }

    /// False if another call has it.
    bool ok() const { return in_use_ != nullptr; }

   private:
    std::atomic<bool>* in_use_;
  };

  /// For a caller who works on `LoadedMethod::method()` directly.
  Use use() { return Use(*in_use_); }

 private:
  Session(std::shared_ptr<const ArenaProgram> program, ArenaPool pool,
          std::shared_ptr<std::atomic<bool>> in_use,
          const SessionOptions& options);

  runtime::Result<LoadedMethod*> load_in_use(const std::string& name,
                                             Finding* finding);
  runtime::Error execute_in_use(LoadedMethod& method,
                                runtime::Span<const runtime::EValue> inputs,
                                runtime::Span<runtime::EValue> outputs);

  std::shared_ptr<const ArenaProgram> program_;
  ArenaPool pool_;
  /// Without memory of others, for forks.
  SessionOptions options_;
  runtime::BackendOptions<1> xnnpack_options_;
  runtime::LoadBackendOptionsMap backend_options_;
  runtime::EventTracer* event_tracer_;
  std::unordered_map<std::string, std::shared_ptr<LoadedMethod>> methods_;
  uint64_t num_unloads_ = 0;
  /// One for all sessions that share scratch arenas.
  std::shared_ptr<std::atomic<bool>> in_use_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
