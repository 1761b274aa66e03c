// The kernels of parts, called as a method calls them.

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>
#include <gtest/gtest.h>

namespace {

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::runtime::BoxedEvalueList;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

/// A contiguous tensor over bytes of someone else; it may get smaller.
class Floats {
 public:
  Floats(std::vector<SizesType> sizes, float* data)
      : sizes_(std::move(sizes)),
        order_(sizes_.size()),
        strides_(sizes_.size()) {
    SizesType stride = 1;
    for (size_t d = sizes_.size(); d-- > 0;) {
      order_[d] = static_cast<uint8_t>(d);
      strides_[d] = stride;
      stride *= sizes_[d];
    }
    impl_.emplace(ScalarType::Float, static_cast<ssize_t>(sizes_.size()),
                  sizes_.data(), data, order_.data(), strides_.data(),
                  executorch::runtime::TensorShapeDynamism::DYNAMIC_BOUND);
  }

  Tensor tensor() { return Tensor(&*impl_); }

  std::vector<SizesType> sizes() {
    const auto sizes = impl_->sizes();
    return {sizes.begin(), sizes.end()};
  }

 private:
  std::vector<SizesType> sizes_;
  std::vector<uint8_t> order_;
  std::vector<SizesType> strides_;
  std::optional<TensorImpl> impl_;
};

class PartKernels : public testing::Test {
 protected:
  void SetUp() override {
    executorch::runtime::runtime_init();
    for (size_t i = 0; i < state_.size(); ++i) {
      state_[i] = static_cast<float>(i);
    }
  }

  template <size_t N>
  static Error call(const char* name, std::array<EValue, N> values) {
    std::array<EValue*, N> stack;
    for (size_t i = 0; i < N; ++i) {
      stack[i] = &values[i];
    }
    const auto kernel =
        executorch::runtime::get_op_function_from_registry(name, {});
    if (!kernel.ok()) {
      return kernel.error();
    }
    KernelRuntimeContext context;
    (*kernel)(context, Span<EValue*>(stack.data(), N));
    return context.failure_state();
  }

  Error slice(Floats& self, int64_t dim, EValue start, EValue end, int64_t step,
              Floats& out) {
    return call<6>("pte_arenas::slice_copy.out",
                   {EValue(self.tensor()), EValue(dim), start, end,
                    EValue(step), EValue(out.tensor())});
  }

  Error select(Floats& self, int64_t dim, int64_t index, Floats& out) {
    return call<4>("pte_arenas::select_copy.out",
                   {EValue(self.tensor()), EValue(dim), EValue(index),
                    EValue(out.tensor())});
  }

  std::array<float, 24> state_{};
  std::array<float, 24> other_{};
};

TEST_F(PartKernels, PartThatIsThereGetsItsSizesOnly) {
  Floats self({6, 4}, state_.data());
  Floats out({6, 4}, state_.data());
  const auto before = state_;
  ASSERT_EQ(slice(self, 0, EValue(), EValue(int64_t{3}), 1, out), Error::Ok);
  EXPECT_EQ(out.sizes(), (std::vector<SizesType>{3, 4}));
  Floats row({4}, state_.data() + 20);
  ASSERT_EQ(select(self, 0, -1, row), Error::Ok);
  EXPECT_EQ(state_, before);
}

TEST_F(PartKernels, PartElsewhereIsCopied) {
  Floats self({6, 4}, state_.data());
  Floats out({6, 4}, other_.data());
  ASSERT_EQ(slice(self, -2, EValue(int64_t{2}), EValue(int64_t{99}), 1, out),
            Error::Ok);
  EXPECT_EQ(out.sizes(), (std::vector<SizesType>{4, 4}));
  EXPECT_EQ(other_[0], 8);
  EXPECT_EQ(other_[15], 23);
  Floats row({4}, other_.data());
  ASSERT_EQ(select(self, 0, 1, row), Error::Ok);
  EXPECT_EQ(other_[0], 4);
}

TEST_F(PartKernels, PartAtAnotherPlaceOfItIsRefused) {
  Floats self({6, 4}, state_.data());
  Floats out({2, 4}, state_.data() + 4);
  const auto before = state_;
  EXPECT_EQ(slice(self, 0, EValue(int64_t{2}), EValue(int64_t{4}), 1, out),
            Error::InvalidArgument);
  EXPECT_EQ(state_, before);
}

TEST_F(PartKernels, NothingIsLeftOfASliceBehindTheEnd) {
  Floats self({6, 4}, state_.data());
  Floats out({6, 4}, other_.data());
  ASSERT_EQ(slice(self, 0, EValue(int64_t{5}), EValue(int64_t{2}), 1, out),
            Error::Ok);
  EXPECT_EQ(out.sizes(), (std::vector<SizesType>{0, 4}));
}

TEST_F(PartKernels, DimensionsOfOneComeAndGo) {
  Floats self({1, 6, 4}, state_.data());
  Floats more({1, 6, 1, 4}, state_.data());
  ASSERT_EQ(call<3>("pte_arenas::unsqueeze_copy.out",
                    {EValue(self.tensor()), EValue(int64_t{-2}),
                     EValue(more.tensor())}),
            Error::Ok);
  EXPECT_EQ(more.sizes(), (std::vector<SizesType>{1, 6, 1, 4}));
  Floats less({6, 1, 4}, other_.data());
  std::array<int64_t, 2> dims{0, 1};  // the second is not of size 1 and stays
  std::array<EValue, 2> numbers{EValue(dims[0]), EValue(dims[1])};
  std::array<EValue*, 2> wrapped{&numbers[0], &numbers[1]};
  BoxedEvalueList<int64_t> list(wrapped.data(), dims.data(), 2);
  ASSERT_EQ(
      call<3>("pte_arenas::squeeze_copy.out",
              {EValue(more.tensor()), EValue(&list), EValue(less.tensor())}),
      Error::Ok);
  EXPECT_EQ(less.sizes(), (std::vector<SizesType>{6, 1, 4}));
  EXPECT_EQ(other_, state_);
}

TEST_F(PartKernels, WhatIsNoRunOrNotThereIsRefused) {
  Floats self({6, 4}, state_.data());
  Floats out({6, 4}, other_.data());
  const int64_t two = 2;
  EXPECT_EQ(slice(self, 1, EValue(), EValue(two), 1, out),
            Error::InvalidArgument);
  EXPECT_EQ(slice(self, 0, EValue(), EValue(two), 2, out),
            Error::InvalidArgument);
  EXPECT_EQ(slice(self, 2, EValue(), EValue(two), 1, out),
            Error::InvalidArgument);
  EXPECT_EQ(select(self, 0, 6, out), Error::InvalidArgument);
  EXPECT_EQ(select(self, 0, -7, out), Error::InvalidArgument);
  Floats small({2, 4}, other_.data());
  EXPECT_EQ(slice(self, 0, EValue(), EValue(int64_t{3}), 1, small),
            Error::InvalidArgument);
  EXPECT_EQ(other_, (std::array<float, 24>{}));
}

}  // namespace
