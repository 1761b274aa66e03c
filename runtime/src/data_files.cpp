#include "data_files.h"

#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
#include <executorch/extension/named_data_map/merged_data_map.h>

#include <utility>

#include "message.h"
#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using ET_MERGED_DATA_MAP_NAMESPACE::MergedDataMap;
using runtime::DataLoader;
using runtime::Error;
using runtime::FreeableBuffer;
using runtime::Result;

namespace {

template <typename Base, typename Derived>
Result<std::unique_ptr<Base>> on_heap(Result<Derived> value) {
  if (!value.ok()) {
    return value.error();
  }
  return std::unique_ptr<Base>(new Derived(std::move(*value)));
}

MmapDataLoader::MlockConfig mlock_of(LoadMode mode) {
  switch (mode) {
    case LoadMode::MmapUseMlock:
      return MmapDataLoader::MlockConfig::UseMlock;
    case LoadMode::MmapUseMlockIgnoreErrors:
      return MmapDataLoader::MlockConfig::UseMlockIgnoreErrors;
    case LoadMode::MmapUseMadvise:
      return MmapDataLoader::MlockConfig::UseMadvise;
    default:
      return MmapDataLoader::MlockConfig::NoMlock;
  }
}

}  // namespace

Result<std::unique_ptr<DataLoader>> open_file(const char* path, LoadMode mode) {
  return mode == LoadMode::File
             ? on_heap<DataLoader>(FileDataLoader::from(path))
             : on_heap<DataLoader>(MmapDataLoader::from(path, mlock_of(mode)));
}

Result<std::unique_ptr<DataFiles>> DataFiles::load(
    const std::vector<std::string>& paths, LoadMode mode, Finding* finding) {
  std::unique_ptr<DataFiles> files;
  if (paths.empty()) {
    return files;
  }
  files.reset(new DataFiles());
  for (size_t i = 0; i < paths.size(); ++i) {
    const Error error = files->add(paths[i].c_str(), mode);
    if (error != Error::Ok) {
      write_path(finding, "data_files[", uint64_t{i}, "]");
      (void)refuse(finding,
                   "expected a .ptd file that ExecuTorch accepts but it found ",
                   runtime::to_string(error));
      return error;
    }
  }
  const Error error = files->merge();
  if (error != Error::Ok) {
    write_path(finding, "data_files");
    (void)refuse(finding,
                 "expected each name in one file only but ExecuTorch found ",
                 runtime::to_string(error));
    return error;
  }
  return files;
}

Error DataFiles::add(const char* path, LoadMode mode) {
  Result<std::unique_ptr<DataLoader>> loader = open_file(path, mode);
  if (!loader.ok()) {
    return loader.error();
  }
  auto map =
      on_heap<const NamedDataMap>(FlatTensorDataMap::load(loader->get()));
  if (!map.ok()) {
    return map.error();
  }
  loaders_.push_back(std::move(*loader));
  maps_.push_back(std::move(*map));
  return Error::Ok;
}

Error DataFiles::merge() {
  std::vector<const NamedDataMap*> maps;
  maps.reserve(maps_.size());
  for (const auto& map : maps_) {
    maps.push_back(map.get());
  }
  auto merged = on_heap<const NamedDataMap>(
      MergedDataMap::load({maps.data(), maps.size()}));
  if (!merged.ok()) {
    return merged.error();
  }
  all_ = std::move(*merged);
  return Error::Ok;
}

Error DataFiles::load_data_into(std::string_view key, void* buffer,
                                size_t size) const {
  const auto* const protection = ProgramLoader::Protection::current();
  if (protection != nullptr && protection->covers(buffer)) {
    return Error::Ok;
  }
  MemoryBlock* const block =
      protection == nullptr ? nullptr : protection->private_block(buffer);
  if (block == nullptr || block->is_on_host()) {
    return all_->load_data_into(key, buffer, size);
  }
  const Result<FreeableBuffer> data = all_->get_data(key);
  if (!data.ok()) {
    return data.error();
  }
  if (data->size() < size) {
    return Error::InvalidExternalData;
  }
  return block->write(block->offset_of(buffer),
                      {static_cast<const uint8_t*>(data->data()), size});
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
