#pragma once

#include <executorch/extension/arenas/finding.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// A name from the file, printed between single quotes and escaped.
struct Name {
  std::string_view text;
};

/// A list of integers from the file, printed as `[2, 3]`.
template <typename T>
struct List {
  runtime::Span<const T> items;
};

/// A half-open byte range by its start and length, printed as `[begin, end)`.
struct Bytes {
  uint64_t begin;
  uint64_t length;
};

/// A device, printed as `cpu:0`; an unknown type as its number.
struct DeviceName {
  int type;
  int index;
};

/**
 * Writes text into a fixed array, without a heap.
 *
 * What does not fit is dropped; the limits below keep every sentence of
 * docs/checks.md within the arrays of a Finding.
 */
class Message final {
 public:
  /// Names are printed up to this many code points.
  static constexpr size_t kMaxNameLength = 60;
  /// Lists are printed up to this many elements.
  static constexpr size_t kMaxListLength = 16;

  Message(char* buffer, size_t capacity)
      : buffer_(buffer), capacity_(capacity) {
    buffer_[0] = '\0';
  }

  void put(std::string_view text);
  void put(const char* text) { put(std::string_view(text)); }
  // A template, since which type int32_t is differs: on Arm it is long.
  template <typename Integer,
            std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  void put(Integer number) {
    if constexpr (std::is_signed_v<Integer>) {
      put_signed(number);
    } else {
      put_unsigned(number);
    }
  }
  void put(Name name);
  void put(Bytes bytes);
  void put(DeviceName device);

  template <typename T>
  void put(List<T> list) {
    put("[");
    for (size_t i = 0; i < list.items.size() && i < kMaxListLength; ++i) {
      put(i == 0 ? "" : ", ");
      put(static_cast<int64_t>(list.items[i]));
    }
    put(list.items.size() > kMaxListLength ? ", ...]" : "]");
  }

 private:
  void put_signed(int64_t number);
  void put_unsigned(uint64_t number);
  void put_escaped(uint32_t code_point);
  void put_unicode_escape(uint32_t code_unit);

  char* buffer_;
  size_t capacity_;
  size_t length_ = 0;
};

/// The path of a field, built from pieces only when a rule is broken.
template <typename... Parts>
void write_path(Finding* finding, Parts... parts) {
  if (finding != nullptr) {
    Message path(finding->path, Finding::kPathSize);
    (path.put(parts), ...);
  }
}

/// The message of a finding; returns what a broken rule returns.
template <typename... Parts>
runtime::Error refuse(Finding* finding, Parts... parts) {
  if (finding != nullptr) {
    Message message(finding->message, Finding::kMessageSize);
    (message.put(parts), ...);
  }
  return runtime::Error::InvalidProgram;
}

/// The one finding for everything structural.
runtime::Error refuse_structure(Finding* finding);

/**
 * Decodes one code point of UTF-8.
 *
 * @param[in] text Not empty.
 * @param[out] code_point Set on success.
 *
 * @returns The number of bytes it takes, or 0 if they are not UTF-8.
 */
size_t decode_utf8(std::string_view text, uint32_t* code_point);

bool is_utf8(std::string_view text);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
