#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/span.h>

#include <cstdint>
#include <string_view>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * Lays out the planned memory of one method over the program's arenas.
 *
 * The spans are then what `HierarchicalAllocator` takes. Uses no heap. Every
 * bound memory id becomes its arena whatever the caller put there, so that no
 * method can get a private copy of shared memory by mistake.
 *
 * @param[in] table What the program declares.
 * @param[in] method Name of the method.
 * @param[in,out] planned One span per planned buffer, memory id 1 first. The
 *     caller fills those of unbound memory ids with private memory of at least
 *     the planned size, on the device that `ArenaTable::planned_buffer()`
 * names; the others are set here.
 * @param[in] arenas One span per arena, in the order of the table, each at
 *     least as large and as aligned as declared. Must outlive the method. If
 *     methods have XNNPACK delegates, 64 bytes behind each span must be
 *     readable, as behind `planned`: kernels read beyond the ends of tensors.
 *
 * @retval Error::NotFound No method has this name.
 * @retval Error::InvalidArgument A number, size or alignment of spans is wrong.
 */
ET_ARENAS_API runtime::Error bind_arenas(
    const ArenaTable& table, std::string_view method,
    runtime::Span<runtime::Span<uint8_t>> planned,
    runtime::Span<const runtime::Span<uint8_t>> arenas);

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
