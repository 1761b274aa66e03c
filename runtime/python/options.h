#pragma once

#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/options.h>
#include <nanobind/nanobind.h>

#include <vector>

namespace pte_arenas {

/// Adds the enumerations LoadMode and Verification.
void define_options(nanobind::module_& module);

/// Options for delegates, as Python gives them and a session needs them kept.
class BackendOptions final {
 public:
  /**
   * Copies a dict of dicts: backend, option, and a bool, an int or a str.
   *
   * Throws TypeError or ValueError for anything else.
   */
  explicit BackendOptions(const nanobind::dict& options);

  BackendOptions(const BackendOptions&) = delete;
  BackendOptions& operator=(const BackendOptions&) = delete;

  const executorch::runtime::LoadBackendOptionsMap& map() const { return map_; }

 private:
  std::vector<std::vector<executorch::runtime::BackendOption>> options_;
  executorch::runtime::LoadBackendOptionsMap map_;
};

}  // namespace pte_arenas
