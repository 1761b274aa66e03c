#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/loaded_method.h>
#include <executorch/runtime/core/evalue.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dlpack.h"

namespace pte_arenas {

using LoadedMethod = executorch::extension::arenas::LoadedMethod;
using Method = LoadedMethod::Method;

/// How the shape of an input may vary.
enum class Shape : uint8_t {
  Fixed,
  /// Up to the sizes of the signature.
  Bounded,
  /// Of this rank.
  Free,
};

/// A value that is no tensor; nothing for None.
using Scalar = std::variant<std::monostate, int64_t, double, bool, std::string>;

/// What a method takes at one place of its inputs.
struct InputType {
  bool is_tensor = false;
  /// The value that the method was exported with, and specialised to.
  Scalar exported;
  /// Of a tensor, like the rest.
  executorch::aten::ScalarType scalar_type{};
  dlpack::DataType dlpack_type{};
  Shape shape = Shape::Fixed;
  std::vector<int32_t> sizes;
  std::vector<uint8_t> dim_order;
  /// Whether the program has memory for it, which the elements are copied to.
  bool is_planned = false;
  /// Whether the method changes it, as eager code would change the caller's.
  bool is_mutated = false;

  /// `float32 of sizes (1, 512)`, `None` or `the int 3 that ...`. Needs the
  /// GIL.
  std::string in_words() const;
};

/// What a method gives at one place of its outputs.
struct OutputType {
  /// Whether the caller provides the memory: a tensor that was not planned and
  /// is no input or earlier output under another name.
  bool is_placed = false;
  /// Room for the largest shape, in bytes.
  size_t capacity = 0;
};

/// What a method takes and gives, which the program alone decides.
struct Signature {
  std::string method;
  std::vector<InputType> inputs;
  std::vector<OutputType> outputs;
  /// `input 0 on the CPU but found it on cuda:0`, where Python cannot reach it;
  /// else empty.
  std::string unreachable;

  Signature(executorch::extension::arenas::LoadedMethod& loaded_method,
            const executorch::extension::arenas::ArenaTable& table);
};

/**
 * Makes a method that was just loaded take its inputs for set: they are written
 * where they go, by `Inputs::set()`, because the checks of
 * `Method::set_input()` are made before.
 */
void take_over_inputs(Method& method);

/// The value that holds an input of a loaded method.
const executorch::runtime::EValue& input_value(const Method& method,
                                               size_t index);

/// Sizes in Python's way: `(1, 512)`.
std::string sizes_in_words(const std::vector<int32_t>& sizes);

}  // namespace pte_arenas
