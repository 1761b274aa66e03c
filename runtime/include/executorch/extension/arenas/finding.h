#pragma once

#include <executorch/extension/arenas/namespace.h>

#include <cstddef>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * The first rule that a program file breaks, in words.
 *
 * Plain arrays, so that it can be filled without a heap. Both texts are
 * null-terminated ASCII and long enough for every sentence of docs/checks.md:
 * names and lists are shortened before they are written.
 */
struct Finding {
  static constexpr size_t kPathSize = 128;
  static constexpr size_t kMessageSize = 1024;

  /// Path of the offending field, such as `arenas[0].slots[1].offset`.
  char path[kPathSize] = {};

  /// What was expected there and what was found.
  char message[kMessageSize] = {};
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
