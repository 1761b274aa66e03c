#pragma once

#include <executorch/runtime/core/device_allocator.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pte_arenas {
namespace test {

/**
 * A device in the memory of the process, pages of which can neither be read nor
 * written except by the allocator's own copy functions. So an access by the CPU
 * dies instead of going unnoticed.
 */
class GuardedDevice final : public executorch::runtime::DeviceAllocator {
 public:
  using Error = executorch::runtime::Error;
  using Index = executorch::runtime::etensor::DeviceIndex;

  /// Registered for CUDA at the first call.
  static GuardedDevice& get();

  executorch::runtime::Result<void*> allocate(size_t nbytes, Index index,
                                              size_t alignment) override;
  void deallocate(void* ptr, Index index) override;
  Error copy_host_to_device(void* dst, const void* src, size_t nbytes,
                            Index index) override;
  Error copy_device_to_host(void* dst, const void* src, size_t nbytes,
                            Index index) override;
  executorch::runtime::etensor::DeviceType device_type() const override {
    return executorch::runtime::etensor::DeviceType::CUDA;
  }

  size_t num_blocks() const;

  /// Size of the largest copy to the device since it was last set to 0.
  size_t largest_copy = 0;

  /// Asked by every call that may fail whether it does.
  bool (*fails)() = [] { return false; };

 private:
  /// Free where `address` is null.
  struct Block {
    uint8_t* address;
    size_t mapped_size;
    size_t size;
    Index index;
  };

  GuardedDevice() = default;

  /// Copies with the pages open; refuses what is in no block of the device.
  Error copy(void* dst, const void* src, const void* on_device, size_t nbytes,
             Index index);

  /// The block that holds an address of a device, or null.
  Block* find(const void* address, Index index);

  // In place: the heap may be what fails in a test.
  std::array<Block, 16> blocks_{};
};

}  // namespace test
}  // namespace pte_arenas
