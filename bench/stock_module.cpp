// Runs methods of a program with ExecuTorch's own `Module`, as an application
// does that knows no arenas.
//
//   stock_module FILE private|shared CALL...
//
// A call is `load:METHOD` or `run:METHOD:VALUE`, which fills every input with
// the value and prints the outputs on a line of JSON.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;

int failed(const std::string& call, Error error) {
  std::fprintf(stderr, "%s: error 0x%x\n", call.c_str(),
               static_cast<unsigned>(error));
  return 1;
}

void print(const Tensor& tensor) {
  std::printf("[");
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double value =
        tensor.scalar_type() == ScalarType::Long
            ? static_cast<double>(tensor.const_data_ptr<int64_t>()[i])
            : static_cast<double>(tensor.const_data_ptr<float>()[i]);
    std::printf("%s%.9g", i == 0 ? "" : ", ", value);
  }
  std::printf("]");
}

Error run(Module& module, const std::string& method, float value) {
  const auto meta = module.method_meta(method);
  if (!meta.ok()) {
    return meta.error();
  }
  std::vector<TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t i = 0; i < meta->num_inputs(); ++i) {
    const auto sizes = meta->input_tensor_meta(i)->sizes();
    tensors.push_back(executorch::extension::full({sizes.begin(), sizes.end()},
                                                  value, ScalarType::Float));
    inputs.emplace_back(*tensors.back());
  }
  const auto outputs = module.execute(method, inputs);
  if (!outputs.ok()) {
    return outputs.error();
  }
  std::printf("[");
  for (size_t i = 0; i < outputs->size(); ++i) {
    std::printf("%s", i == 0 ? "" : ", ");
    print((*outputs)[i].toTensor());
  }
  std::printf("]\n");
  return Error::Ok;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: stock_module FILE private|shared CALL...\n");
    return 2;
  }
  Module module(argv[1], Module::LoadMode::File, nullptr, nullptr, nullptr,
                /*share_memory_arenas=*/std::string(argv[2]) == "shared");
  for (int i = 3; i < argc; ++i) {
    const std::string call = argv[i];
    const size_t begin = call.find(':') + 1;
    const size_t end = call.find(':', begin);
    const std::string method = call.substr(begin, end - begin);
    const Error error =
        end == std::string::npos
            ? module.load_method(method)
            : run(module, method, std::strtof(&call[end + 1], nullptr));
    if (error != Error::Ok) {
      return failed(call, error);
    }
  }
  return 0;
}
