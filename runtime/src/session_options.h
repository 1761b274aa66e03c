#pragma once

#include <executorch/extension/arenas/session.h>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// Name of the XNNPACK delegate, checked against ExecuTorch 1.5.1.
constexpr char kXnnpackBackend[] = "XnnpackBackend";

/**
 * Checks of the options what the pool cannot, which knows of no program and no
 * session.
 *
 * @retval Error::InvalidArgument See `finding`.
 */
runtime::Error check_options(const ArenaProgram& program,
                             const SessionOptions& options, Finding* finding);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
