#pragma once

#include <cstdint>

/**
 * @file
 * The parts of DLPack's binary interface, version 1.3, that torch exchanges
 * tensors through: plain C structures, laid out as its specification says.
 */

namespace pte_arenas {
namespace dlpack {

constexpr uint32_t kMajorVersion = 1;
constexpr uint32_t kMinorVersion = 3;
constexpr int32_t kCpu = 1;

enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8_e4m3fn = 10,
  kFloat8_e4m3fnuz = 11,
  kFloat8_e5m2 = 12,
  kFloat8_e5m2fnuz = 13,
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;

  bool operator==(const DataType& other) const {
    return code == other.code && bits == other.bits && lanes == other.lanes;
  }
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor* self);
  uint64_t flags;
  Tensor tensor;
};

/// Functions return 0, or -1 with a Python exception set. Objects are PyObject.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* allocate;
  void* to_managed;
  int (*from_managed)(ManagedTensor* tensor, void** object);
  int (*to_tensor)(void* object, Tensor* tensor);
  void* current_stream;
};

}  // namespace dlpack
}  // namespace pte_arenas
