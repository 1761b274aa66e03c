#include <executorch/extension/arenas/memory_block.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::DataLoader;
using runtime::DeviceAllocator;
using runtime::DeviceMemoryBuffer;
using runtime::Error;
using runtime::Result;
using runtime::Span;
using runtime::etensor::Device;

namespace {

/// Calls `step(done, staging)` until `size` bytes are done; the staging buffer
/// starts as zeros and is as long as the step.
template <typename Step>
Error in_steps(size_t size, const Step& step) {
  if (size == 0) {
    return Error::Ok;
  }
  const Result<ZeroedMemory> staging = ZeroedMemory::allocate(
      std::min(size, MemoryBlock::kStagingBytes), alignof(std::max_align_t));
  if (!staging.ok()) {
    return staging.error();
  }
  for (size_t done = 0; done < size;) {
    const size_t length = std::min(size - done, MemoryBlock::kStagingBytes);
    ET_CHECK_OK_OR_RETURN_ERROR(
        step(done, Span<uint8_t>(staging->span().data(), length)));
    done += length;
  }
  return Error::Ok;
}

}  // namespace

Result<MemoryBlock> MemoryBlock::allocate(size_t size, size_t alignment,
                                          Device device) {
  if (device.is_cpu()) {
    Result<ZeroedMemory> pages = ZeroedMemory::allocate(size, alignment);
    if (!pages.ok()) {
      return pages.error();
    }
    const Span<uint8_t> span = pages->span();
    return MemoryBlock(std::move(*pages), span, device, nullptr);
  }
  DeviceAllocator* const allocator =
      runtime::get_device_allocator(device.type());
  if (allocator == nullptr) {
    return Error::NotSupported;
  }
  // Allocators need not know what to do with 0 bytes.
  Result<DeviceMemoryBuffer> buffer = DeviceMemoryBuffer::create(
      std::max(size, size_t{1}), device.type(), device.index(), alignment);
  if (!buffer.ok()) {
    return buffer.error();
  }
  const Span<uint8_t> span(static_cast<uint8_t*>(buffer->data()), size);
  MemoryBlock block(std::move(*buffer), span, device, allocator);
  const Error error = block.zero(0, size);
  if (error != Error::Ok) {
    return error;
  }
  return block;
}

Result<MemoryBlock> MemoryBlock::borrow(Span<uint8_t> memory, Device device) {
  if (device.is_cpu()) {
    return MemoryBlock(std::monostate(), memory, device, nullptr);
  }
  DeviceAllocator* const allocator =
      runtime::get_device_allocator(device.type());
  if (allocator == nullptr) {
    return Error::NotSupported;
  }
  return MemoryBlock(std::monostate(), memory, device, allocator);
}

bool MemoryBlock::contains(const void* address) const {
  const auto* const byte = static_cast<const uint8_t*>(address);
  const std::less_equal<const uint8_t*> at_or_before;
  return at_or_before(span_.begin(), byte) && !at_or_before(span_.end(), byte);
}

Error MemoryBlock::zero(size_t offset, size_t size) {
  if (is_on_host()) {
    if (ZeroedMemory* const pages = owned_host()) {
      pages->zero(offset, size);
    } else if (size != 0) {
      std::memset(span_.data() + offset, 0, size);
    }
    return Error::Ok;
  }
  return in_steps(size, [&](size_t done, Span<uint8_t> zeros) {
    return write(offset + done, {zeros.data(), zeros.size()});
  });
}

Error MemoryBlock::write(size_t offset, Span<const uint8_t> from) {
  if (from.size() == 0) {
    return Error::Ok;
  }
  if (is_on_host()) {
    std::memcpy(span_.data() + offset, from.data(), from.size());
    return Error::Ok;
  }
  return copies_->copy_host_to_device(span_.data() + offset, from.data(),
                                      from.size(), device_.index());
}

Error MemoryBlock::read(size_t offset, Span<uint8_t> to) const {
  if (to.size() == 0) {
    return Error::Ok;
  }
  if (is_on_host()) {
    std::memcpy(to.data(), span_.data() + offset, to.size());
    return Error::Ok;
  }
  return copies_->copy_device_to_host(to.data(), span_.data() + offset,
                                      to.size(), device_.index());
}

Error MemoryBlock::load(size_t offset, size_t size, const DataLoader& file,
                        size_t file_offset,
                        const DataLoader::SegmentInfo& info) {
  if (is_on_host()) {
    return file.load_into(file_offset, size, info, span_.data() + offset);
  }
  return in_steps(size, [&](size_t done, Span<uint8_t> staging) {
    const Error error = file.load_into(file_offset + done, staging.size(), info,
                                       staging.data());
    return error != Error::Ok
               ? error
               : write(offset + done, {staging.data(), staging.size()});
  });
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
