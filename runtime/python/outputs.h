#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "dlpack.h"
#include "inputs.h"
#include "signature.h"

namespace pte_arenas {

/**
 * A tensor for torch: its description, and behind it in the same block of the
 * heap its elements, unless they are in memory that it shares.
 */
struct TensorBlock {
  static constexpr size_t kMaxRank = 16;

  dlpack::ManagedTensor managed;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  /// Keeps the elements where they are not in the block.
  std::shared_ptr<const void> owner;

  struct Delete {
    void operator()(TensorBlock* block) const;
  };
  using Owner = std::unique_ptr<TensorBlock, Delete>;

  /// Null if there is no memory.
  static Owner allocate(size_t nbytes);

  /// Takes over the type and shape of a tensor, whose elements are at `data`.
  void describe(const executorch::aten::Tensor& tensor, void* data);

  char* data();
};

/**
 * The outputs of one call: owned apart from the session, or views of its
 * memory.
 */
class Outputs final {
 public:
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

  static executorch::runtime::Error copy(
      const executorch::runtime::EValue& value, Value* copied);
  static executorch::runtime::Error view(const executorch::aten::Tensor& tensor,
                                         std::shared_ptr<const void> owner,
                                         Value* viewed);
  static executorch::runtime::Error copy(const executorch::aten::Tensor& tensor,
                                         Value* copied);
  static nanobind::object to_python(Value& value);

  List values_;
  /// New values of inputs, by their index.
  std::vector<std::pair<size_t, Value>> mutated_;
};

}  // namespace pte_arenas
