#include "checks.h"
#include "message.h"
#include "wire.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;

// For the name of an operator with its overload, in ExecuTorch 1.5.1
// (kTempBufferSizeForName).
constexpr size_t kNameBufferSize = 100;

/// What the instructions of a plan refer to.
class InstructionCheck {
 public:
  explicit InstructionCheck(const wire::ExecutionPlan& plan) : plan_(plan) {}

  bool is_resolvable(const wire::Chain& chain,
                     const wire::Instruction& instruction) const {
    if (instruction.instr_args() == nullptr) {
      return false;
    }
    const size_t values = size_of(plan_.values());
    switch (instruction.instr_args_type()) {
      case wire::InstructionArguments::KernelCall: {
        const auto& call = *instruction.instr_args_as_KernelCall();
        return is_operator(call.op_index()) && are_values(call.args());
      }
      case wire::InstructionArguments::DelegateCall: {
        const auto& call = *instruction.instr_args_as_DelegateCall();
        return is_below(call.delegate_index(), size_of(plan_.delegates())) &&
               are_values(call.args());
      }
      case wire::InstructionArguments::MoveCall: {
        const auto& call = *instruction.instr_args_as_MoveCall();
        return is_below(call.move_from(), values) &&
               is_below(call.move_to(), values);
      }
      case wire::InstructionArguments::JumpFalseCall: {
        const auto& call = *instruction.instr_args_as_JumpFalseCall();
        return is_below(call.cond_value_index(), values) &&
               is_below(call.destination_instruction(),
                        size_of(chain.instructions()) + 1);
      }
      case wire::InstructionArguments::FreeCall:
        return is_tensor(instruction.instr_args_as_FreeCall()->value_index());
      default:
        return false;
    }
  }

 private:
  /// ExecuTorch forgets that it could not look up a name, and then calls what
  /// it has not found.
  bool is_operator(int32_t index) const {
    if (!is_below(index, size_of(plan_.operators()))) {
      return false;
    }
    const wire::Operator& op =
        *plan_.operators()->Get(static_cast<flatbuffers::uoffset_t>(index));
    const size_t overload = size_of(op.overload());
    const size_t with_dot = overload == 0 ? 0 : overload + 1;
    return op.name() != nullptr &&
           op.name()->size() + with_dot < kNameBufferSize;
  }

  bool are_values(const flatbuffers::Vector<int32_t>* indices) const {
    for (size_t i = 0; i < size_of(indices); ++i) {
      if (!is_below(indices->Get(i), size_of(plan_.values()))) {
        return false;
      }
    }
    return indices != nullptr;
  }

  bool is_tensor(int32_t value) const {
    return is_below(value, size_of(plan_.values())) &&
           type_of(plan_, value) == wire::KernelTypes::Tensor;
  }

  const wire::ExecutionPlan& plan_;
};

}  // namespace

runtime::Error check_instructions(const ProgramReader& program, size_t plan,
                                  Finding* finding) {
  const auto& table =
      *static_cast<const wire::ExecutionPlan*>(program.plan(plan).table());
  const InstructionCheck check(table);
  for (size_t c = 0; c < size_of(table.chains()); ++c) {
    const wire::Chain& chain = *table.chains()->Get(c);
    for (size_t i = 0; i < size_of(chain.instructions()); ++i) {
      if (!check.is_resolvable(chain, *chain.instructions()->Get(i))) {
        write_path(finding, "execution_plan[", uint64_t{plan}, "].chains[",
                   uint64_t{c}, "].instructions[", uint64_t{i}, "]");
        return refuse(finding,
                      "expected an instruction over values, named operators "
                      "and delegates of the plan");
      }
    }
  }
  return Error::Ok;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
