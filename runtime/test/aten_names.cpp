// Compiled with the ATen variant: source code that says nothing of variants
// means this one.

#include <executorch/extension/arenas/session.h>

#include <type_traits>

namespace {

namespace arenas = executorch::extension::arenas;

static_assert(std::is_same_v<arenas::Session, arenas::aten::Session>);
static_assert(std::is_same_v<arenas::ArenaProgram, arenas::aten::ArenaProgram>);
static_assert(
    std::is_same_v<decltype(arenas::SlotInfo::scalar_type), c10::ScalarType>);

}  // namespace
