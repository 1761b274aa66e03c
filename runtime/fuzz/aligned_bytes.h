#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

/// A copy of the fuzzer's bytes, aligned as a parser wants them, and no longer,
/// so that AddressSanitizer sees a read behind them.
class AlignedBytes final {
 public:
  AlignedBytes(const uint8_t* bytes, size_t size)
      : data_(new uint8_t[size]), size_(size) {
    if (size != 0) {
      std::memcpy(data_.get(), bytes, size);
    }
  }

  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> data_;
  size_t size_;
};
