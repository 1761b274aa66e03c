#pragma once

#include <pte_arenas/wire/program_generated.h>

#include <cstdint>

namespace pte_arenas {
namespace test {

/// The device that `device_program()` is for.
constexpr int8_t kDeviceIndex = 1;

/**
 * The counter program with its arena on the device, and with a private buffer
 * `t` there that starts from the same values.
 *
 * - `bump(x)` adds `x` to `n` and to `t` and returns `n + t`, on the host.
 * - `get()` returns `n`, on the host.
 *
 * Registers the backend that it is lowered to, on a GuardedDevice.
 */
wire::ProgramT device_program();

}  // namespace test
}  // namespace pte_arenas
