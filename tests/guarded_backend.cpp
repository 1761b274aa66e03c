// A device and a backend for it, loaded into a Python process: additions on
// runtime/test/guarded_device.h, for what ExecuTorch's device-aware test
// partitioner delegates.

#include <executorch/runtime/backend/interface.h>

#include <vector>

#include "guarded_device.h"

namespace {

using executorch::aten::Tensor;
using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;
using pte_arenas::test::GuardedDevice;

constexpr int8_t kDevice = 0;

class Additions final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*,
                               ArrayRef<CompileSpec>) const override {
    return nullptr;
  }

  /// The arguments are two tensors and their sum.
  Error execute(BackendExecutionContext&, DelegateHandle*,
                Span<EValue*> args) const override {
    if (args.size() != 3) {
      return Error::NotSupported;
    }
    std::vector<float> sum;
    std::vector<float> other;
    ET_CHECK_OK_OR_RETURN_ERROR(read(args[0]->toTensor(), &sum));
    ET_CHECK_OK_OR_RETURN_ERROR(read(args[1]->toTensor(), &other));
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += other[i];
    }
    const Tensor& out = args[2]->toTensor();
    return GuardedDevice::get().copy_host_to_device(
        out.mutable_data_ptr(), sum.data(), out.nbytes(), kDevice);
  }

 private:
  static Error read(const Tensor& tensor, std::vector<float>* to) {
    to->resize(static_cast<size_t>(tensor.numel()));
    return GuardedDevice::get().copy_device_to_host(
        to->data(), tensor.const_data_ptr(), tensor.nbytes(), kDevice);
  }
};

Additions additions;

const Error registered = [] {
  GuardedDevice::get();
  return executorch::runtime::register_backend(
      {"BackendWithCompilerDemo", &additions});
}();

}  // namespace
