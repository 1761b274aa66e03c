#pragma once

#include <executorch/extension/arenas/session.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "program_builder.h"

/**
 * @file
 * Sessions over the counter program and those made from it, and calls of its
 * methods.
 */

namespace pte_arenas {
namespace test {

using Floats = std::vector<float>;
using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::LoadOptions;
using executorch::extension::arenas::Session;
using executorch::extension::arenas::SessionOptions;

/// A program in memory, with sessions over it.
class LoadedProgram final {
 public:
  explicit LoadedProgram(const wire::ProgramT& program = counter_program(),
                         const CounterOptions& options = {})
      : file_(file_of(program, options)),
        program_(*ArenaProgram::load(file_.data(), file_.size(), nullptr,
                                     load_options(options))) {}

  std::unique_ptr<Session> session(const SessionOptions& options = {}) const {
    Finding finding;
    auto session = Session::create(program_, options, &finding);
    EXPECT_TRUE(session.ok()) << finding.path << ": " << finding.message;
    return std::move(*session);
  }

  /// Why there is no session with these options: `path: message`.
  std::string refusal(const SessionOptions& options) const {
    Finding finding;
    EXPECT_FALSE(Session::create(program_, options, &finding).ok());
    return finding.path + std::string(": ") + finding.message;
  }

  const std::shared_ptr<const ArenaProgram>& get() const { return program_; }

 private:
  /// Without arenas the methods of a counter look as if they shared memory.
  static LoadOptions load_options(const CounterOptions& options) {
    LoadOptions load_options;
    load_options.is_unshared = !options.has_arenas;
    return load_options;
  }

  FileBytes file_;
  std::shared_ptr<const ArenaProgram> program_;
};

inline Floats floats_of(const executorch::runtime::EValue& value) {
  const executorch::aten::Tensor tensor = value.toTensor();
  const float* const data = tensor.const_data_ptr<float>();
  return Floats(data, data + tensor.numel());
}

/// `bump([by, by])`
inline executorch::runtime::Result<std::vector<executorch::runtime::EValue>>
try_bump(Session& session, float by) {
  float x[] = {by, by};
  int32_t sizes[] = {2};
  uint8_t dim_order[] = {0};
  executorch::aten::TensorImpl tensor(executorch::aten::ScalarType::Float, 1,
                                      sizes, x, dim_order);
  const executorch::runtime::EValue input{executorch::aten::Tensor(&tensor)};
  return session.execute("bump", {&input, 1});
}

inline Floats bump(Session& session, float by) {
  const auto outputs = try_bump(session, by);
  EXPECT_EQ(outputs.error(), executorch::runtime::Error::Ok);
  return outputs.ok() ? floats_of((*outputs)[0]) : Floats();
}

inline Floats get(Session& session) {
  const auto outputs = session.execute("get", {});
  EXPECT_EQ(outputs.error(), executorch::runtime::Error::Ok);
  return outputs.ok() ? floats_of((*outputs)[0]) : Floats();
}

}  // namespace test
}  // namespace pte_arenas
