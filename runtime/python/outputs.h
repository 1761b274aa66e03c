#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "inputs.h"
#include "signature.h"
#include "tensor_block.h"

namespace pte_arenas {

/**
 * The outputs of one call: owned apart from the session, or views of its
 * memory.
 */
class Outputs final {
 public:
  /// @param[in] spare Memory to reuse.
  explicit Outputs(const std::shared_ptr<SpareBlocks>& spare) : spare_(spare) {}

  /// Gives the method memory for the outputs that it has none for.
  executorch::runtime::Error place(const Signature& signature, Method& method);

  /**
   * Takes what the method gave and the inputs that it changed, after it was
   * executed.
   *
   * @param[in] owner Keeps the method's memory, for views of it; null to copy.
   */
  executorch::runtime::Error take(const Signature& signature,
                                  LoadedMethod& method,
                                  std::shared_ptr<const void> owner);

  /// Changes the caller's tensors where the method changed its inputs. With the
  /// GIL.
  void write_back(const Inputs& inputs);

  /// A Python list. With the GIL. Empties this object.
  nanobind::list to_python();

 private:
  struct Value;
  using List = std::vector<Value>;
  using Content = std::variant<Scalar, TensorBlock::Owner, List>;
  struct Value {
    Content content;
  };

  executorch::runtime::Error copy(const executorch::runtime::EValue& value,
                                  Value* copied) const;
  static executorch::runtime::Error view(const executorch::aten::Tensor& tensor,
                                         std::shared_ptr<const void> owner,
                                         Value* viewed);
  executorch::runtime::Error copy(const executorch::aten::Tensor& tensor,
                                  Value* copied) const;
  static nanobind::object to_python(Value& value);

  const std::shared_ptr<SpareBlocks>& spare_;
  List values_;
  /// New values of inputs, by their index.
  std::vector<std::pair<size_t, Value>> mutated_;
};

}  // namespace pte_arenas
