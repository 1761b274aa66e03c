#include "element_type.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

constexpr ElementType kUnknown = {nullptr, 0};

// Indexed by the value of ScalarType.
constexpr ElementType kElementTypes[] = {
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    kUnknown,  // complex32
    kUnknown,  // complex64
    kUnknown,  // complex128
    {"bool", 1},
    {"qint8", 1},
    {"quint8", 1},
    {"qint32", 4},
    {"bfloat16", 2},
    {"quint4x2", 1},
    {"quint2x4", 1},
    kUnknown,  // bits1x8
    kUnknown,  // bits2x4
    kUnknown,  // bits4x2
    kUnknown,  // bits8
    {"bits16", 2},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e4m3fnuz", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
};

constexpr int kNumElementTypes =
    static_cast<int>(sizeof(kElementTypes) / sizeof(kElementTypes[0]));

}  // namespace

ElementType element_type(int code) {
  return code < 0 || code >= kNumElementTypes ? kUnknown : kElementTypes[code];
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
