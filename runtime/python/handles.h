#pragma once

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "borrowed.h"
#include "event_log.h"
#include "options.h"
#include "signature.h"
#include "snapshots.h"
#include "tensor_block.h"

namespace pte_arenas {

class SessionHandle;

/// A program as Python holds it.
class ProgramHandle final {
 public:
  using Program = executorch::extension::arenas::ArenaProgram;

  using LoadMode = executorch::extension::arenas::LoadMode;
  using Verification = Program::Program::Verification;

  /// Throws InvalidProgramError, ArenaError or RuntimeError.
  static ProgramHandle from_file(const nanobind::bytes& path,
                                 const std::vector<nanobind::bytes>& data_files,
                                 LoadMode mode, bool is_unshared,
                                 Verification verification);

  /// Keeps the bytes alive instead of copying them.
  static ProgramHandle from_bytes(
      const nanobind::bytes& data,
      const std::vector<nanobind::bytes>& data_files, LoadMode mode,
      bool is_unshared, Verification verification);

  /// In the order of the file.
  std::vector<std::string> method_names() const;

  nanobind::object metadata(const std::string& method) const;

  /// Plain values for pte_arenas.layout: a dict per arena.
  nanobind::list arenas() const;

  /**
   * @param[in] arenas Memory for arenas by their names: see BorrowedMemory.
   * @param[in] keep Whether what is in it is their state.
   * @param[in] scratch_from A session to share scratch arenas with, or null.
   * @param[in] backend_options See BackendOptions.
   * @param[in] debug_buffer_size See EventLog; without one nothing is logged.
   */
  std::shared_ptr<SessionHandle> session(
      const nanobind::dict& arenas, bool keep,
      const std::shared_ptr<SessionHandle>& scratch_from,
      const nanobind::dict& backend_options,
      std::optional<size_t> debug_buffer_size) const;

  /// All zeros, for states that come from elsewhere.
  std::shared_ptr<SnapshotHandle> blank_snapshot() const;

  /// How many bytes the program's file has.
  uint64_t nbytes() const;

  /// Some of them.
  nanobind::bytes read(uint64_t offset, size_t size) const;

 private:
  explicit ProgramHandle(std::shared_ptr<const Program> program)
      : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

class MethodHandle;

/**
 * A session as Python holds it: serialised by a mutex, which is only taken
 * without the GIL, so that neither can wait for the other.
 */
class SessionHandle final : public std::enable_shared_from_this<SessionHandle> {
 public:
  using Session = executorch::extension::arenas::Session;

  using SharedMemory = std::shared_ptr<const BorrowedMemory>;

  /// What a session uses as long as it lives.
  struct Resources {
    std::vector<SharedMemory> borrowed;
    /// Shared with forks.
    std::shared_ptr<const BackendOptions> backend_options;
    std::unique_ptr<EventLog> event_log;
  };

  /// @param[in] mutex One for all sessions that share scratch arenas.
  SessionHandle(std::unique_ptr<Session> session,
                std::shared_ptr<std::mutex> mutex, Resources resources)
      : resources_(std::move(resources)),
        session_(std::move(session)),
        shared_mutex_(std::move(mutex)) {}

  MethodHandle load_method(const std::string& name);
  void unload_method(const std::string& name);

  /// Runs a method, and loads it if need be; nothing can unload it in between.
  /// Outputs that the program planned are views where they are not copied.
  nanobind::list execute(const std::string& name, nanobind::handle inputs,
                         bool copy_outputs);

  /// Names of the methods that are loaded, in the order of the file.
  std::vector<std::string> loaded_methods();

  void reset(std::optional<std::string_view> arena,
             std::optional<std::string_view> slot);

  /// The events since the last time, as an ETDump and the values that it points
  /// into; None if there were none.
  nanobind::object take_etdump();

  /// @param[in] into Whose memory to reuse, or null.
  std::shared_ptr<SnapshotHandle> snapshot(
      std::shared_ptr<SnapshotHandle> into);

  /// Restores the named arenas.
  void restore(SnapshotHandle& from, const std::vector<std::string>& arenas);

  std::shared_ptr<SessionHandle> fork(bool copy_on_write);

  /// Arena and slot.
  using SlotName = std::pair<std::string, std::string>;

  /// Writes the head of a file and the bytes of slots behind it, all of one
  /// moment. Throws OSError.
  void write(int file, nanobind::handle path, const nanobind::bytes& head,
             const std::vector<SlotName>& slots);

  /// A torch tensor over the slot's bytes, which keeps this session alive.
  nanobind::object slot_tensor(std::string_view arena, std::string_view slot);

  /// A torch tensor of the caller's with the slot's elements.
  nanobind::object clone_slot(std::string_view arena, std::string_view slot);

  /// Copies the elements of a torch tensor into the slot.
  void copy_to_slot(std::string_view arena, std::string_view slot,
                    nanobind::handle tensor);

 private:
  friend class MethodHandle;
  friend class ProgramHandle;

  using SharedSignature = std::shared_ptr<const Signature>;
  using LoadedMethod = executorch::extension::arenas::LoadedMethod;

  /// What to do with a method that is not loaded.
  enum class IfUnloaded : uint8_t { Load, Refuse };

  SharedSignature load(const std::string& name);
  nanobind::list execute(const Signature& signature, nanobind::handle inputs,
                         bool copy_outputs, IfUnloaded if_unloaded);

  /// What keeps the memory of a method.
  std::shared_ptr<const void> owner_of(LoadedMethod& method);

  /// With the mutex.
  executorch::runtime::Result<LoadedMethod*> load_locked(
      const std::string& name, executorch::extension::arenas::Finding* finding);

  executorch::extension::arenas::SlotInfo slot_info(
      std::string_view arena, std::string_view slot) const;

  // Before the session that uses them.
  Resources resources_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<std::mutex> shared_mutex_;
  std::mutex& mutex_ = *shared_mutex_;
  /// Of outputs that were dropped.
  const std::shared_ptr<SpareBlocks> spare_ = std::make_shared<SpareBlocks>();
  /// Of each method that was ever loaded, by its name. Used with the GIL.
  std::unordered_map<std::string, SharedSignature> signatures_;
};

/**
 * A method of a session by its name. Stays good when the method is unloaded and
 * loaded again.
 */
class MethodHandle final {
 public:
  MethodHandle(std::shared_ptr<SessionHandle> session,
               std::shared_ptr<const Signature> signature)
      : session_(std::move(session)), signature_(std::move(signature)) {}

  nanobind::list execute(nanobind::handle inputs, bool copy_outputs);

  const std::string& name() const { return signature_->method; }

  nanobind::object metadata() const;

 private:
  std::shared_ptr<SessionHandle> session_;
  std::shared_ptr<const Signature> signature_;
};

}  // namespace pte_arenas
