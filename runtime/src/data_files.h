#pragma once

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// Opens a file; reads nothing yet.
runtime::Result<std::unique_ptr<runtime::DataLoader>> open_file(
    const char* path, LoadMode mode);

/**
 * The constants of `.ptd` files, by name.
 *
 * Like `ProgramLoader`, it keeps ExecuTorch from writing into the arenas of a
 * session while a method of it is loaded: a tensor in bound memory may have an
 * initial value in such a file.
 */
class DataFiles final : public executorch::ET_RUNTIME_NAMESPACE::NamedDataMap {
 public:
  using NamedDataMap = executorch::ET_RUNTIME_NAMESPACE::NamedDataMap;
  using TensorLayout = executorch::ET_RUNTIME_NAMESPACE::TensorLayout;

  /**
   * Opens files and reads which names they have.
   *
   * @param[out] finding If not null, filled with the file that ExecuTorch
   *     refuses.
   *
   * @returns Null if there are no files. Errors of the data loaders and of
   *     `FlatTensorDataMap::load()`.
   */
  static runtime::Result<std::unique_ptr<DataFiles>> load(
      const std::vector<std::string>& paths, LoadMode mode, Finding* finding);

  runtime::Result<const TensorLayout> get_tensor_layout(
      std::string_view key) const override {
    return all_->get_tensor_layout(key);
  }
  runtime::Result<runtime::FreeableBuffer> get_data(
      std::string_view key) const override {
    return all_->get_data(key);
  }
  runtime::Error load_data_into(std::string_view key, void* buffer,
                                size_t size) const override;
  runtime::Result<uint32_t> get_num_keys() const override {
    return all_->get_num_keys();
  }
  runtime::Result<const char*> get_key(uint32_t index) const override {
    return all_->get_key(index);
  }

 private:
  DataFiles() = default;

  runtime::Error add(const char* path, LoadMode mode);
  runtime::Error merge();

  // In this order, since maps point to loaders and the last one to the others.
  std::vector<std::unique_ptr<runtime::DataLoader>> loaders_;
  std::vector<std::unique_ptr<const NamedDataMap>> maps_;
  std::unique_ptr<const NamedDataMap> all_;
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
