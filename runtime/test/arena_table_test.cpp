#include <executorch/extension/arenas/arena_table.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "program_builder.h"

using executorch::aten::ScalarType;
using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::Lifetime;
using executorch::runtime::Error;
using executorch::runtime::Span;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;
using pte_arenas::wire::ProgramT;

namespace internal = executorch::extension::arenas::internal;

namespace {

constexpr char kDamaged[] =
    "program: expected a well-formed ExecuTorch program but found damaged or "
    "truncated data";

/// The verdict on a file: `path: message`, or nothing.
std::string verdict(Span<const uint8_t> bytes) {
  Finding finding;
  const auto table = ArenaTable::parse(bytes, bytes.size(), &finding);
  const std::string path = finding.path;
  EXPECT_EQ(table.ok(), path.empty());
  return path.empty() ? "" : path + ": " + finding.message;
}

std::string verdict(const std::function<void(ProgramT&)>& change) {
  ProgramT program = counter_program();
  change(program);
  FileBytes file = file_of(program);
  return verdict({file.data(), file.size()});
}

TEST(ArenaTableTest, GivesWhatTheFileDeclares) {
  FileBytes file = file_of(counter_program());
  const auto table = ArenaTable::parse({file.data(), file.size()}, file.size());
  ASSERT_TRUE(table.ok());
  ASSERT_EQ(table->num_arenas(), 1U);
  const auto arena = table->arena(0);
  EXPECT_EQ(arena.name, "state");
  EXPECT_EQ(arena.size, 96U);
  EXPECT_EQ(arena.alignment, 64U);
  EXPECT_EQ(arena.lifetime, Lifetime::State);
  EXPECT_TRUE(arena.device.is_cpu());
  ASSERT_EQ(arena.num_slots, 2U);
  const auto slot = table->slot(0, 1);
  EXPECT_EQ(slot.name, "m");
  EXPECT_EQ(slot.scalar_type, ScalarType::Float);
  ASSERT_EQ(slot.sizes.size(), 1U);
  EXPECT_EQ(slot.sizes[0], 3);
  EXPECT_EQ(slot.offset, 64U);
  EXPECT_EQ(slot.nbytes, 12U);
  EXPECT_FALSE(table->initial_value(0, 1).has_value());
  const auto value = table->initial_value(0, 0);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->file_offset, file.size() - 64 + 16);
}

TEST(ArenaTableTest, FindsThingsByName) {
  FileBytes file = file_of(counter_program());
  const auto table = ArenaTable::parse({file.data(), file.size()}, file.size());
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(*table->find_arena("state"), 0U);
  EXPECT_EQ(*table->find_slot(0, "m"), 1U);
  EXPECT_EQ(*table->find_method("get"), 1U);
  EXPECT_EQ(table->find_arena("State").error(), Error::NotFound);
  EXPECT_EQ(table->find_slot(0, "").error(), Error::NotFound);
  EXPECT_EQ(table->find_method("ge").error(), Error::NotFound);
}

TEST(ArenaTableTest, GivesPlannedBuffers) {
  FileBytes file = file_of(counter_program());
  const auto table = ArenaTable::parse({file.data(), file.size()}, file.size());
  ASSERT_TRUE(table.ok());
  ASSERT_EQ(table->num_planned_buffers(0), 2U);
  EXPECT_EQ(table->planned_buffer(0, 0).size, 64U);
  EXPECT_FALSE(table->planned_buffer(0, 0).arena.has_value());
  EXPECT_EQ(table->planned_buffer(0, 1).arena, 0U);
}

TEST(ArenaTableTest, AProgramWithoutArenasHasNone) {
  pte_arenas::test::CounterOptions options;
  options.has_arenas = false;
  FileBytes file = file_of(counter_program(options), options);
  const auto table = ArenaTable::parse({file.data(), file.size()}, file.size());
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->num_arenas(), 0U);
  EXPECT_EQ(table->num_methods(), 2U);
  EXPECT_EQ(table->find_arena("state").error(), Error::NotFound);
}

// The whole list of rules is tested from Python, which must agree; here are
// those that need care in C++.
TEST(ArenaTableTest, RefusesWithASentence) {
  EXPECT_EQ(verdict([](ProgramT&) {}), "");
  EXPECT_EQ(verdict([](ProgramT& p) { p.program_arenas->format = 2; }),
            "program_arenas.format: expected 1 but found 2");
  EXPECT_EQ(
      verdict([](ProgramT& p) { p.program_arenas->arenas[0]->alignment = 12; }),
      "arenas[0].alignment: expected a power of two but found 12");
  EXPECT_EQ(
      verdict([](ProgramT& p) {
        p.program_arenas->arenas[0]->slots[1]->offset = UINT64_MAX - 7;
      }),
      "arenas[0].slots[1]: expected bytes [18446744073709551608, 2^64 or more) "
      "inside the arena of 96 bytes");
  EXPECT_EQ(verdict([](ProgramT& p) {
              auto& slots = p.program_arenas->arenas[0]->slots;
              std::swap(slots[0], slots[1]);
            }),
            "arenas[0].slots[1]: expected slots in the order of their offsets "
            "but found 'n' at [0, 8) after [64, 76)");
  EXPECT_EQ(verdict([](ProgramT& p) {
              p.program_arenas->arenas[0]->slots[1]->fully_qualified_name = "n";
            }),
            "arenas[0].slots[1].fully_qualified_name: expected a unique name "
            "but found 'n' again");
}

TEST(ArenaTableTest, ManyNamesAreComparedExactly) {
  constexpr int kCount = 3000;  // enough for the filter to err
  const auto fill = [](ProgramT& program, int last) {
    auto& arena = *program.program_arenas->arenas[0];
    arena.size = 4 * kCount + 4;
    for (auto& plan : program.execution_plan) {
      plan->values.resize(0);
      plan->outputs.resize(0);
      plan->inputs.resize(0);
    }
    arena.slots.resize(0);
    for (int i = 0; i <= kCount; ++i) {
      arena.slots.push_back(std::make_unique<pte_arenas::wire::ArenaSlotT>());
      auto& slot = *arena.slots.back();
      slot.fully_qualified_name = std::to_string(i < kCount ? i : last);
      slot.scalar_type = pte_arenas::wire::ScalarType::FLOAT;
      slot.offset = 4 * static_cast<uint64_t>(i);
      slot.nbytes = 4;
    }
  };
  EXPECT_EQ(verdict([&](ProgramT& p) { fill(p, kCount); }), "");
  EXPECT_EQ(verdict([&](ProgramT& p) { fill(p, 17); }),
            "arenas[0].slots[3000].fully_qualified_name: expected a unique "
            "name but found '17' again");
}

TEST(ArenaTableTest, RefusesEveryTruncation) {
  FileBytes file = file_of(counter_program());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(verdict({file.data(), size}), kDamaged) << size;
  }
}

TEST(ArenaTableTest, SurvivesEveryDamagedByte) {
  FileBytes file = file_of(counter_program());
  for (size_t i = 0; i < file.size(); ++i) {
    for (const uint8_t mask : {0x01, 0x80, 0xff}) {
      file.data()[i] ^= mask;
      // Only that it gives a verdict: some bytes mean nothing.
      (void)verdict({file.data(), file.size()});
      file.data()[i] ^= mask;
    }
  }
}

TEST(ArenaTableTest, FindsInputsThatAMethodMutates) {
  const auto mutates = [](const char* name, std::vector<int32_t> args) {
    ProgramT program = counter_program();
    auto& bump = *program.execution_plan[0];
    bump.operators[0]->name = name;
    bump.chains[0]->instructions[0]->instr_args.AsKernelCall()->args =
        std::move(args);
    FileBytes file = file_of(program);
    const auto table =
        ArenaTable::parse({file.data(), file.size()}, file.size());
    EXPECT_TRUE(table.ok() && !table->mutates_input(0, 1) &&
                !table->mutates_input(1, 0));
    return table.ok() && table->mutates_input(0, 0);
  };
  EXPECT_FALSE(mutates("aten::add", {0, 1, 2, 0, 0}));
  EXPECT_TRUE(mutates("aten::copy_", {1, 0, 2, 1}));
  EXPECT_FALSE(mutates("aten::copy_", {0, 1, 2, 0})) << "mutates state";
  EXPECT_FALSE(mutates("aten::copy", {1, 0, 2, 1}));
  EXPECT_FALSE(mutates("aten::__and__", {1, 0, 2}));
  EXPECT_FALSE(mutates("aten::copy_", {}));
}

TEST(ArenaTableTest, RefusesUnalignedBytes) {
  FileBytes file = file_of(counter_program());
  EXPECT_EQ(ArenaTable::parse({file.data() + 8, file.size() - 8}, file.size())
                .error(),
            Error::InvalidArgument);
}

TEST(ArenaTableTest, SizesAreCheckedAgainstTheTarget) {
  ProgramT program = counter_program();
  auto& arena = *program.program_arenas->arenas[0];
  FileBytes file = file_of(program);
  const auto check = [&](uint64_t size) {
    arena.size = size;
    file = file_of(program);
    Finding finding;
    const internal::ProgramReader reader =
        internal::ProgramReader::verify({file.data(), file.size() - 64});
    EXPECT_TRUE(reader.present());
    return internal::check_program(reader, UINT32_MAX, &finding) == Error::Ok
               ? ""
               : finding.path + std::string(": ") + finding.message;
  };
  EXPECT_EQ(check(UINT32_MAX - 64), "");
  EXPECT_EQ(check(UINT32_MAX - 63),
            "arenas[0].size: expected at most 4294967231 bytes but found "
            "4294967232");
}

TEST(ArenaTableTest, TakesMoreTablesThanFlatBuffersAllowsByDefault) {
  FileBytes file = file_of([] {
    ProgramT program = counter_program();
    auto& values = program.execution_plan[1]->values;
    while (values.size() < 600000) {  // two tables each
      values.push_back(std::make_unique<pte_arenas::wire::EValueT>());
      values.back()->val.Set(pte_arenas::wire::BoolT());
    }
    return program;
  }());
  EXPECT_EQ(verdict({file.data(), file.size()}), "");
}

}  // namespace
