#include <executorch/extension/arenas/arena_pool.h>
#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/bind_arenas.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "counter_calls.h"
#include "program_builder.h"

/**
 * @file
 * Arenas under ExecuTorch's own `Module`: whoever calls its `load_method()` may
 * bring the planned memory.
 */

using executorch::extension::BufferDataLoader;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::extension::arenas::ArenaPool;
using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::bind_arenas;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::Result;
using executorch::runtime::Span;
using pte_arenas::test::counter_program;
using pte_arenas::test::CounterOptions;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;
using pte_arenas::test::Floats;
using pte_arenas::test::floats_of;

namespace {

/// What a method is loaded with. ExecuTorch keeps pointers to all of it.
struct PlannedMemory {
  alignas(64) uint8_t activations[64];
  Span<uint8_t> spans[2] = {{activations, sizeof(activations)}, {}};
  HierarchicalAllocator allocator{{spans, 2}};
};

TensorPtr input(float value) {
  return executorch::extension::full({2}, value,
                                     executorch::aten::ScalarType::Float);
}

/// The counter program in a `Module`, and its arena with the initial value.
class Counter final {
 public:
  explicit Counter(const CounterOptions& options = {},
                   bool share_memory_arenas = false)
      : file_(file_of(counter_program(options), options)),
        module_(std::make_unique<BufferDataLoader>(file_.data(), file_.size()),
                nullptr, nullptr, nullptr, nullptr, share_memory_arenas) {
    const auto slot = table_.slot(0, 0);
    std::memcpy(arenas_->spans()[0].data() + slot.offset,
                file_.data() + table_.initial_value(0, 0)->file_offset,
                slot.nbytes);
  }

  Module& module() { return module_; }

  /// Loads a method over the arena, unless it is loaded.
  Error load(const char* method) {
    PlannedMemory& memory = memory_[method];
    const Error error =
        bind_arenas(table_, method, {memory.spans, 2}, arenas_->spans());
    return error == Error::Ok ? module_.load_method(method, &memory.allocator)
                              : error;
  }

  Floats bump(float by) { return outputs_of("bump", {*input(by)}); }
  Floats get() { return outputs_of("get", {}); }

  Floats outputs_of(const char* method, const std::vector<EValue>& inputs) {
    const auto outputs = module_.execute(method, inputs);
    EXPECT_EQ(outputs.error(), Error::Ok);
    return outputs.ok() ? floats_of((*outputs)[0]) : Floats();
  }

  /// `n`, as it is in the arena.
  Floats state() const {
    Floats floats(2);
    std::memcpy(floats.data(), arenas_->spans()[0].data(), 8);
    return floats;
  }

 private:
  FileBytes file_;
  const ArenaTable table_ =
      *ArenaTable::parse({file_.data(), file_.size()}, file_.size());
  const Result<ArenaPool> arenas_ = ArenaPool::create(table_);
  std::map<std::string, PlannedMemory> memory_;
  Module module_;
};

TEST(ModuleTest, MethodsShareState) {
  Counter counter;
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  ASSERT_EQ(counter.load("get"), Error::Ok);
  EXPECT_EQ(counter.get(), (Floats{5, 6}));
  EXPECT_EQ(counter.bump(1), (Floats{6, 7}));
  EXPECT_EQ(counter.get(), (Floats{6, 7}));
  EXPECT_EQ(counter.state(), (Floats{6, 7}));
}

TEST(ModuleTest, LoadingAndReloadingKeepState) {
  Counter counter;
  for (float i = 1; i < 4; ++i) {
    ASSERT_EQ(counter.load("bump"), Error::Ok);
    EXPECT_EQ(counter.bump(1), (Floats{5 + i, 6 + i}));
    ASSERT_TRUE(counter.module().unload_method("bump"));
    ASSERT_EQ(counter.load("get"), Error::Ok);
    EXPECT_EQ(counter.get(), (Floats{5 + i, 6 + i}));
    ASSERT_TRUE(counter.module().unload_method("get"));
  }
}

TEST(ModuleTest, SettingInputsKeepsTheMethodOverTheArenas) {
  Counter counter;
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  ASSERT_EQ(counter.load("get"), Error::Ok);
  ASSERT_EQ(counter.module().set_input("bump", *input(1), 0), Error::Ok);
  EXPECT_EQ(counter.get(), (Floats{5, 6}));
  EXPECT_EQ(counter.outputs_of("bump", {}), (Floats{6, 7}));
  EXPECT_EQ(counter.state(), (Floats{6, 7}));
  ASSERT_EQ(counter.module().set_inputs("bump", {*input(2)}), Error::Ok);
  EXPECT_EQ(counter.outputs_of("bump", {}), (Floats{8, 9}));
  EXPECT_EQ(counter.state(), (Floats{8, 9}));
}

TEST(ModuleTest, RefusesToBringMemoryOfItsOwn) {
  for (const bool share_memory_arenas : {false, true}) {
    Counter counter({}, share_memory_arenas);
    Module& module = counter.module();
    const auto refuses = [&] {
      const Error expected = Error::MemoryAllocationFailed;
      EXPECT_EQ(module.load_method("bump"), expected);
      EXPECT_EQ(module.execute("bump", *input(1)).error(), expected);
      EXPECT_EQ(module.set_input("bump", *input(1), 0), expected);
      EXPECT_EQ(module.set_inputs("bump", {*input(1)}), expected);
      EXPECT_EQ(module.get_outputs("bump").error(), expected);
      EXPECT_FALSE(module.is_method_loaded("bump"));
    };
    refuses();
    ASSERT_EQ(counter.load("bump"), Error::Ok);
    EXPECT_EQ(counter.bump(1), (Floats{6, 7}));
    ASSERT_TRUE(module.unload_method("bump"));
    refuses();
    EXPECT_EQ(counter.state(), (Floats{6, 7}));
  }
}

CounterOptions optional_arenas() {
  CounterOptions options;
  options.require_arenas = false;
  return options;
}

TEST(ModuleTest, OptionalArenasAreSharedOnceAllMethodsAreLoaded) {
  Counter counter(optional_arenas());
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  ASSERT_EQ(counter.load("get"), Error::Ok);
  EXPECT_EQ(counter.bump(1), (Floats{6, 7}));
  EXPECT_EQ(counter.get(), (Floats{6, 7}));
  EXPECT_EQ(counter.state(), (Floats{6, 7}));
}

TEST(ModuleTest, OptionalArenasStartAgainAtEachLoad) {
  Counter counter(optional_arenas());
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  EXPECT_EQ(counter.bump(1), (Floats{6, 7}));
  ASSERT_EQ(counter.load("get"), Error::Ok);
  EXPECT_EQ(counter.state(), (Floats{5, 6}));
  EXPECT_EQ(counter.bump(1), (Floats{6, 7}));
  ASSERT_TRUE(counter.module().unload_method("bump"));
  EXPECT_EQ(counter.state(), (Floats{6, 7}));
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  EXPECT_EQ(counter.state(), (Floats{5, 6}));
}

TEST(ModuleTest, OptionalArenasAreMissedByAMethodThatIsLoadedAlready) {
  Counter counter(optional_arenas());
  ASSERT_EQ(counter.module().set_input("bump", *input(1), 0), Error::Ok);
  ASSERT_EQ(counter.load("bump"), Error::Ok) << "does nothing";
  EXPECT_EQ(counter.outputs_of("bump", {}), (Floats{6, 7}));
  EXPECT_EQ(counter.state(), (Floats{5, 6}));
  ASSERT_TRUE(counter.module().unload_method("bump"));
  ASSERT_EQ(counter.load("bump"), Error::Ok);
  EXPECT_EQ(counter.bump(10), (Floats{15, 16}));
  EXPECT_EQ(counter.state(), (Floats{15, 16}));
}

}  // namespace
