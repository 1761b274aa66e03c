// Arenas and private buffers on a device. What the CPU touches there dies.

#include <executorch/extension/arenas/memory_block.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "counter_calls.h"
#include "device_program.h"
#include "guarded_device.h"

using executorch::extension::BufferDataLoader;
using executorch::extension::arenas::ArenaPool;
using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::BorrowedArena;
using executorch::extension::arenas::MemoryBlock;
using executorch::runtime::DataLoader;
using executorch::runtime::Error;
using executorch::runtime::Span;
using executorch::runtime::etensor::Device;
using executorch::runtime::etensor::DeviceType;
using pte_arenas::test::bump;
using pte_arenas::test::device_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;
using pte_arenas::test::Finding;
using pte_arenas::test::Floats;
using pte_arenas::test::get;
using pte_arenas::test::GuardedDevice;
using pte_arenas::test::kDeviceIndex;
using pte_arenas::test::LoadedProgram;
using pte_arenas::test::Session;
using pte_arenas::test::SessionOptions;

namespace {

const Device kDevice(DeviceType::CUDA, kDeviceIndex);

// Before an allocator is registered, which cannot be undone: in a process of
// its own, as ctest runs every test, or first.
TEST(AWithoutDeviceTest, NamesTheArenaAndTheBuffer) {
  const LoadedProgram program(device_program());
  EXPECT_EQ(program.refusal({}),
            "arenas[0].device_type: expected a device allocator for arena "
            "'state' on cuda:1 but found none: link the backend that registers "
            "one");
  auto on_host = device_program();
  on_host.program_arenas->arenas[0]->device_type =
      pte_arenas::wire::DeviceType::CPU;
  on_host.program_arenas->arenas[0]->device_index = 0;
  for (auto& plan : on_host.execution_plan) {
    plan->non_const_buffer_device.erase(plan->non_const_buffer_device.begin());
  }
  const LoadedProgram half(on_host);
  const auto session = half.session();
  Finding finding;
  EXPECT_EQ(session->load_method("bump", &finding).error(),
            Error::NotSupported);
  EXPECT_STREQ(finding.path, "execution_plan[0].non_const_buffer_device");
  EXPECT_STREQ(finding.message,
               "expected a device allocator for memory id 3 on cuda:1 but "
               "found none: link the backend that registers one");
}

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    device_.largest_copy = 0;
    EXPECT_EQ(device_.num_blocks(), 0U);
  }
  ~DeviceTest() override { EXPECT_EQ(device_.num_blocks(), 0U); }

  static Floats copy_out(Session& session) {
    Floats n(2);
    EXPECT_EQ(session.copy_out("state", "n",
                               {reinterpret_cast<uint8_t*>(n.data()), 8}),
              Error::Ok);
    return n;
  }

  GuardedDevice& device_ = GuardedDevice::get();
};

TEST_F(DeviceTest, MethodsShareStateThere) {
  const LoadedProgram program(device_program());
  {
    const auto session = program.session();
    EXPECT_EQ(device_.num_blocks(), 1U);
    EXPECT_EQ(get(*session), (Floats{5, 6}));
    EXPECT_EQ(bump(*session, 1), (Floats{12, 14})) << "n + t, both bumped";
    EXPECT_EQ(device_.num_blocks(), 2U);
    EXPECT_EQ(get(*session), (Floats{6, 7}));
    ASSERT_EQ(session->unload_method("bump"), Error::Ok);
    EXPECT_EQ(device_.num_blocks(), 1U);
    EXPECT_EQ(bump(*session, 1), (Floats{13, 15})) << "t starts again";
    const auto other = program.session();
    EXPECT_EQ(get(*other), (Floats{5, 6}));
  }
  EXPECT_EQ(device_.num_blocks(), 0U);
}

TEST_F(DeviceTest, IsCopiedInAndOutAndReset) {
  const LoadedProgram program(device_program());
  const auto session = program.session();
  EXPECT_EQ(copy_out(*session), (Floats{5, 6}));
  const float n[2] = {40, 50};
  ASSERT_EQ(
      session->copy_in("state", "n", {reinterpret_cast<const uint8_t*>(n), 8}),
      Error::Ok);
  EXPECT_EQ(get(*session), (Floats{40, 50}));
  ASSERT_EQ(session->reset(), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  bump(*session, 1);
  ASSERT_EQ(session->reset("state", "n"), Error::Ok);
  EXPECT_EQ(copy_out(*session), (Floats{5, 6}));
  uint8_t m[12];
  ASSERT_EQ(session->copy_out("state", "m", {m, sizeof(m)}), Error::Ok);
  EXPECT_EQ(std::count(m, m + sizeof(m), 0), 12);
}

TEST_F(DeviceTest, BorrowsItsMemory) {
  const LoadedProgram program(device_program());
  auto memory = MemoryBlock::allocate(96, 64, kDevice);
  ASSERT_TRUE(memory.ok());
  BorrowedArena source{"state", memory->span()};
  SessionOptions options;
  options.borrowed = {&source, 1};
  bump(*program.session(options), 1);
  source.keep = true;
  EXPECT_EQ(get(*program.session(options)), (Floats{6, 7}));
  source.keep = false;
  EXPECT_EQ(get(*program.session(options)), (Floats{5, 6}));
}

TEST_F(DeviceTest, CopiesNoMoreThanTheStagingBufferAtOnce) {
  constexpr size_t kSize = MemoryBlock::kStagingBytes * 5 / 2;
  std::vector<uint8_t> content(kSize + 1);
  std::iota(content.begin(), content.end(), 0);
  const BufferDataLoader file(content.data(), content.size());
  auto block = MemoryBlock::allocate(kSize + 2, 64, kDevice);
  ASSERT_TRUE(block.ok());
  ASSERT_EQ(block->load(1, kSize, file, 1,
                        DataLoader::SegmentInfo(
                            DataLoader::SegmentInfo::Type::Mutable, 0)),
            Error::Ok);
  EXPECT_EQ(device_.largest_copy, MemoryBlock::kStagingBytes);
  std::vector<uint8_t> read(kSize + 2);
  ASSERT_EQ(block->read(0, {read.data(), read.size()}), Error::Ok);
  EXPECT_EQ(read.front(), 0);
  EXPECT_TRUE(std::equal(content.begin() + 1, content.end(), read.begin() + 1));
  EXPECT_EQ(read.back(), 0);
  ASSERT_EQ(block->zero(1, kSize), Error::Ok);
  EXPECT_EQ(device_.largest_copy, MemoryBlock::kStagingBytes);
  ASSERT_EQ(block->read(0, {read.data(), read.size()}), Error::Ok);
  EXPECT_EQ(std::count(read.begin(), read.end(), 0),
            static_cast<ptrdiff_t>(read.size()));
}

TEST_F(DeviceTest, HasBlocksOfNoBytes) {
  auto block = MemoryBlock::allocate(0, 64, kDevice);
  ASSERT_TRUE(block.ok());
  EXPECT_NE(block->span().data(), nullptr);
  EXPECT_EQ(block->span().size(), 0U);
  EXPECT_EQ(block->zero(0, 0), Error::Ok);
  EXPECT_EQ(block->write(0, {}), Error::Ok);
  EXPECT_EQ(block->read(0, {}), Error::Ok);
}

TEST_F(DeviceTest, TellsWhatTheAllocatorRefuses) {
  auto file = device_program();
  file.program_arenas->arenas[0]->alignment = 1U << 20;
  EXPECT_EQ(LoadedProgram(file).refusal({}),
            "arenas[0].size: expected memory on cuda:1 for 96 bytes of arena "
            "'state' but found Error::MemoryAllocationFailed");
}

}  // namespace
