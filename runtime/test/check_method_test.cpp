#include <executorch/extension/arenas/arena_table.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "program_builder.h"

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;

namespace wire = pte_arenas::wire;

namespace {

using Change = std::function<void(wire::ProgramT&, wire::ExecutionPlanT&)>;

/// The verdict on `bump` after a change to it or its program: three values, of
/// which 2 is an int, one operator and one instruction.
std::string verdict(const Change& change) {
  wire::ProgramT program = counter_program();
  change(program, *program.execution_plan[0]);
  FileBytes file = file_of(program);
  const auto table = ArenaTable::parse({file.data(), file.size()}, file.size());
  EXPECT_TRUE(table.ok());
  Finding finding;
  if (table.ok()) {
    (void)table->check_method(0, &finding);
  }
  return finding.path[0] == '\0'
             ? ""
             : finding.path + std::string(": ") + finding.message;
}

std::string verdict(const std::function<void(wire::ExecutionPlanT&)>& change) {
  return verdict(
      [&](wire::ProgramT&, wire::ExecutionPlanT& plan) { change(plan); });
}

template <typename Value>
void add_value(wire::ExecutionPlanT& plan, Value value) {
  plan.values.push_back(std::make_unique<wire::EValueT>());
  plan.values.back()->val.Set(std::move(value));
}

/// The first instruction, made to be of another kind.
template <typename Arguments>
void set_instruction(wire::ExecutionPlanT& plan, Arguments arguments) {
  plan.chains[0]->instructions[0]->instr_args.Set(std::move(arguments));
}

constexpr char kInstruction[] =
    "execution_plan[0].chains[0].instructions[0]: expected an instruction over "
    "values, named operators and delegates of the plan";

TEST(CheckMethodTest, AcceptsWhatIsThere) {
  EXPECT_EQ(verdict([](wire::ExecutionPlanT& plan) {
              wire::IntListT ints;
              ints.items = {2, 2};
              add_value(plan, std::move(ints));
              wire::TensorListT tensors;
              tensors.items = {0, 1};
              add_value(plan, std::move(tensors));
              wire::OptionalTensorListT optional;
              optional.items = {-1, 1};
              add_value(plan, std::move(optional));
            }),
            "");
  EXPECT_EQ(verdict([](wire::ExecutionPlanT& plan) {
              wire::JumpFalseCallT jump;
              jump.destination_instruction = 1;  // behind the last one
              set_instruction(plan, std::move(jump));
            }),
            "");
}

TEST(CheckMethodTest, RefusesIndicesOfNothing) {
  for (const int32_t index : {-1, 3, 1 << 30}) {
    const std::string found = std::to_string(index);
    EXPECT_EQ(
        verdict([&](wire::ExecutionPlanT& plan) { plan.inputs[0] = index; }),
        "execution_plan[0].inputs[0]: expected an index below 3 but found " +
            found);
    EXPECT_EQ(
        verdict([&](wire::ExecutionPlanT& plan) { plan.outputs[0] = index; }),
        "execution_plan[0].outputs[0]: expected an index below 3 but found " +
            found);
  }
}

TEST(CheckMethodTest, RefusesListsOfNothing) {
  // A list refers to tensors before it: 3 is the list itself.
  for (const int32_t index : {-1, 2, 3, 4}) {
    const std::string expected =
        "execution_plan[0].values[3].items[1]: expected the index of an "
        "earlier tensor but found " +
        std::to_string(index);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::TensorListT list;
                list.items = {0, index};
                add_value(plan, std::move(list));
              }),
              expected);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::OptionalTensorListT list;
                list.items = {0, index};
                add_value(plan, std::move(list));
              }),
              index == -1 ? "" : expected);
  }
  for (const int64_t index : {int64_t{-1}, int64_t{1}, int64_t{1} << 40}) {
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::IntListT list;
                list.items = {2, index};
                add_value(plan, std::move(list));
              }),
              "execution_plan[0].values[3].items[1]: expected the index of an "
              "int but found " +
                  std::to_string(index));
  }
}

/// A change that makes value 1 a constant of 8 bytes at an offset of the
/// segment of 64 bytes.
Change constant_at(uint64_t offset, uint32_t index) {
  return [=](wire::ProgramT& program, wire::ExecutionPlanT& plan) {
    program.constant_segment->offsets = {0, offset};
    plan.values[1]->val.AsTensor()->allocation_info.reset();
    plan.values[1]->val.AsTensor()->data_buffer_idx = index;
  };
}

TEST(CheckMethodTest, RefusesConstantsBeyondTheirData) {
  const std::string expected =
      "execution_plan[0].values[1].data_buffer_idx: expected 8 bytes of "
      "constant data but found fewer at index ";
  EXPECT_EQ(verdict(constant_at(56, 1)), "");
  EXPECT_EQ(verdict(constant_at(57, 1)), expected + "1");
  EXPECT_EQ(verdict(constant_at(UINT64_MAX - 3, 1)), expected + "1");
  EXPECT_EQ(verdict(constant_at(0, 2)), expected + "2");
  EXPECT_EQ(verdict([](wire::ProgramT& program, wire::ExecutionPlanT& plan) {
              constant_at(0, 1)(program, plan);
              program.constant_segment->segment_index = 1;
            }),
            expected + "1");
  EXPECT_EQ(verdict([](wire::ProgramT& program, wire::ExecutionPlanT& plan) {
              constant_at(0, 1)(program, plan);
              program.constant_segment->offsets = {0};
            }),
            expected + "1")
      << "nor in the program itself";
}

TEST(CheckMethodTest, RefusesDelegatesWithoutTheirData) {
  const auto delegate =
      [](const std::function<void(wire::ProgramT&, wire::BackendDelegateT&)>&
             change) {
        return verdict([&](wire::ProgramT& program,
                           wire::ExecutionPlanT& plan) {
          plan.delegates.push_back(std::make_unique<wire::BackendDelegateT>());
          change(program, *plan.delegates[0]);
        });
      };
  const auto refer = [](wire::BackendDelegateT& delegate, uint32_t index,
                        wire::DataLocation location) {
    delegate.processed =
        std::make_unique<wire::BackendDelegateDataReferenceT>();
    delegate.processed->location = location;
    delegate.processed->index = index;
  };
  constexpr char kNoData[] =
      "execution_plan[0].delegates[0].processed: expected data in the program "
      "but found none";
  constexpr char kNoSpecs[] =
      "execution_plan[0].delegates[0].compile_specs: expected keys with values "
      "but found none";
  EXPECT_EQ(delegate([](auto&, auto&) {}), kNoData);
  EXPECT_EQ(delegate([&](auto&, auto& d) {
              refer(d, 0, wire::DataLocation::INLINE);
            }),
            kNoData);
  EXPECT_EQ(delegate([&](auto&, auto& d) {
              refer(d, 1, wire::DataLocation::SEGMENT);
            }),
            kNoData);
  EXPECT_EQ(delegate([&](auto&, auto& d) {
              refer(d, 0, wire::DataLocation::SEGMENT);
            }),
            kNoSpecs);
  EXPECT_EQ(delegate([&](auto&, auto& d) {
              refer(d, 0, wire::DataLocation::SEGMENT);
              d.compile_specs.push_back(std::make_unique<wire::CompileSpecT>());
            }),
            kNoSpecs);
}

TEST(CheckMethodTest, RefusesInstructionsOverNothing) {
  EXPECT_EQ(verdict([](wire::ExecutionPlanT& plan) {
              plan.chains[0]->instructions[0]->instr_args.Reset();
            }),
            kInstruction);
  for (const int32_t index : {-1, 3, 1 << 30}) {
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::KernelCallT call;
                call.args = {0, index};
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::KernelCallT call;
                call.op_index = index;
                call.args = {0};
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::DelegateCallT call;
                call.delegate_index = index;
                call.args = {0};
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::MoveCallT call;
                call.move_to = index;
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::JumpFalseCallT call;
                call.destination_instruction = index;
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
    EXPECT_EQ(verdict([&](wire::ExecutionPlanT& plan) {
                wire::FreeCallT call;
                call.value_index = index;
                set_instruction(plan, std::move(call));
              }),
              kInstruction);
  }
  EXPECT_EQ(verdict([](wire::ExecutionPlanT& plan) {
              wire::FreeCallT call;
              call.value_index = 2;  // an int
              set_instruction(plan, std::move(call));
            }),
            kInstruction);
}

TEST(CheckMethodTest, RefusesOperatorsThatExecuTorchCannotLookUp) {
  const auto named = [](const std::string& name, const std::string& overload) {
    return verdict([&](wire::ExecutionPlanT& plan) {
      plan.operators[0]->name = name;
      plan.operators[0]->overload = overload;
    });
  };
  EXPECT_EQ(named("", "out"), kInstruction);
  EXPECT_EQ(named(std::string(95, 'x'), "out"), "");
  EXPECT_EQ(named(std::string(96, 'x'), "out"), kInstruction);
  EXPECT_EQ(named("aten::add", std::string(90, 'x')), kInstruction);
}

}  // namespace
