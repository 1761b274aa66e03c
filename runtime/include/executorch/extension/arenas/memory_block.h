#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <executorch/extension/arenas/zeroed_memory.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/core/device_memory_buffer.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/portable_type/device.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <variant>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * The memory of an arena or of a planned buffer: owned or a caller's, on the
 * host or on a device.
 *
 * Addresses on a device mean nothing to the CPU, so the calls below go through
 * the copy functions of the device's `DeviceAllocator`. What has no source on
 * the host, zeros and bytes of a file, is staged through a buffer of at most
 * `kStagingBytes`, which is allocated for the call.
 *
 * Ranges given to the calls must lie inside the block; they are not checked.
 */
class ET_ARENAS_API MemoryBlock final {
 public:
  /// The largest buffer that copies to a device are staged through.
  static constexpr size_t kStagingBytes = size_t{1} << 20;

  /**
   * A block of zeros; on the host lazily mapped.
   *
   * @param[in] size In bytes; 0 gives a block of no bytes at a valid address.
   * @param[in] alignment Of the first byte; a power of two.
   *
   * @retval Error::NotSupported No allocator is registered for the device.
   * @retval Error::InvalidArgument See ZeroedMemory.
   * @retval Error::MemoryAllocationFailed There is no such block.
   * @returns Other errors of the device's allocator.
   */
  static runtime::Result<MemoryBlock> allocate(size_t size, size_t alignment,
                                               runtime::etensor::Device device);

  /**
   * A caller's memory as it is. Must outlive the block.
   *
   * @retval Error::NotSupported No allocator is registered for the device.
   */
  static runtime::Result<MemoryBlock> borrow(runtime::Span<uint8_t> memory,
                                             runtime::etensor::Device device);

  /// The block; valid as long as this object or the one it was moved to.
  runtime::Span<uint8_t> span() const { return span_; }

  runtime::etensor::Device device() const { return device_; }

  bool is_on_host() const { return copies_ == nullptr; }

  /// Whether an address lies inside the block.
  bool contains(const void* address) const;

  /// The pages of a block that owns host memory, else null.
  ZeroedMemory* owned_host() { return std::get_if<ZeroedMemory>(&memory_); }
  const ZeroedMemory* owned_host() const {
    return std::get_if<ZeroedMemory>(&memory_);
  }

  /// Makes a range of bytes zeros.
  /// @returns Errors of the device's copy function, and of staging.
  runtime::Error zero(size_t offset, size_t size);

  /// Copies bytes of the host into the block.
  /// @returns Errors of the device's copy function.
  runtime::Error write(size_t offset, runtime::Span<const uint8_t> from);

  /// Copies bytes of the block to the host.
  /// @returns Errors of the device's copy function.
  runtime::Error read(size_t offset, runtime::Span<uint8_t> to) const;

  /**
   * Copies bytes of a file into the block.
   *
   * @param[in] file_offset First byte in the file.
   * @param[in] info Handed to the loader.
   *
   * @returns Errors of the loader, of the device's copy function, and of
   *     staging.
   */
  runtime::Error load(size_t offset, size_t size,
                      const runtime::DataLoader& file, size_t file_offset,
                      const runtime::DataLoader::SegmentInfo& info);

 private:
  using Memory =
      std::variant<std::monostate, ZeroedMemory, runtime::DeviceMemoryBuffer>;

  MemoryBlock(Memory memory, runtime::Span<uint8_t> span,
              runtime::etensor::Device device, runtime::DeviceAllocator* copies)
      : memory_(std::move(memory)),
        span_(span),
        device_(device),
        copies_(copies) {}

  /// What is owned; nothing if the memory is a caller's.
  Memory memory_;
  runtime::Span<uint8_t> span_;
  runtime::etensor::Device device_;
  /// Null on the host.
  runtime::DeviceAllocator* copies_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
