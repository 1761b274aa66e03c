#include "tensor_block.h"

#include <executorch/extension/arenas/zeroed_memory.h>

#include <cstdlib>
#include <new>

#include "torch_exchange.h"

namespace pte_arenas {

namespace {

// As torch aligns its own tensors.
constexpr size_t kAlignment = 64;

constexpr size_t round_up(size_t size) {
  return (size + kAlignment - 1) & ~(kAlignment - 1);
}

constexpr size_t kDataOffset = round_up(sizeof(TensorBlock));

// Kernels may read an output that they wrote, and beyond its end.
constexpr size_t kReadableBehind =
    executorch::extension::arenas::ZeroedMemory::kReadableBehind;

void destroy(TensorBlock* block) {
  if (block != nullptr) {
    block->~TensorBlock();
    std::free(block);
  }
}

void delete_block(dlpack::ManagedTensor* managed) {
  TensorBlock::Delete()(static_cast<TensorBlock*>(managed->context));
}

}  // namespace

void TensorBlock::Delete::operator()(TensorBlock* block) const {
  block->owner.reset();
  const std::shared_ptr<SpareBlocks> spare = block->spare.lock();
  destroy(spare == nullptr ? block : spare->keep(block));
}

TensorBlock::Owner TensorBlock::allocate(
    size_t nbytes, const std::shared_ptr<SpareBlocks>& spare) {
  if (nbytes > SIZE_MAX - kDataOffset - kReadableBehind - kAlignment) {
    return nullptr;
  }
  const bool is_reused = spare != nullptr && nbytes >= SpareBlocks::kMinBytes;
  if (is_reused) {
    if (TensorBlock* const block = spare->take(nbytes)) {
      return Owner(block);
    }
  }
  void* const memory = std::aligned_alloc(
      kAlignment, kDataOffset + round_up(nbytes + kReadableBehind));
  if (memory == nullptr) {
    return nullptr;
  }
  auto* const block = new (memory) TensorBlock;
  block->managed.version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  block->managed.context = block;
  block->managed.deleter = delete_block;
  block->managed.flags = 0;
  block->capacity = nbytes;
  if (is_reused) {
    block->spare = spare;
  }
  return Owner(block);
}

void TensorBlock::describe(const executorch::aten::Tensor& tensor, void* data) {
  const auto sizes = tensor.sizes();
  const auto strides_of_tensor = tensor.strides();
  for (size_t d = 0; d < sizes.size(); ++d) {
    shape[d] = sizes[d];
    strides[d] = strides_of_tensor[d];
  }
  managed.tensor = {data,
                    {dlpack::kCpu, 0},
                    static_cast<int32_t>(sizes.size()),
                    dlpack_type(tensor.scalar_type()),
                    shape,
                    strides,
                    0};
}

char* TensorBlock::data() {
  return reinterpret_cast<char*>(this) + kDataOffset;
}

SpareBlocks::~SpareBlocks() {
  for (std::atomic<TensorBlock*>& place : blocks_) {
    destroy(place.load());
  }
}

TensorBlock* SpareBlocks::take(size_t nbytes) {
  for (std::atomic<TensorBlock*>& place : blocks_) {
    TensorBlock* const block = place.exchange(nullptr);
    if (block != nullptr) {
      if (block->capacity >= nbytes && block->capacity / 2 < nbytes) {
        return block;
      }
      destroy(keep(block));
    }
  }
  return nullptr;
}

TensorBlock* SpareBlocks::keep(TensorBlock* block) {
  for (std::atomic<TensorBlock*>& place : blocks_) {
    TensorBlock* empty = nullptr;
    if (place.compare_exchange_strong(empty, block)) {
      return nullptr;
    }
  }
  return blocks_[oldest_++ % blocks_.size()].exchange(block);
}

}  // namespace pte_arenas
