#pragma once

/**
 * @file
 * The namespace of this extension.
 *
 * `executorch::extension::arenas`, or `executorch::extension::arenas::aten`
 * when compiled with `USE_ATEN_LIB`, so that one binary can hold the portable
 * and the ATen variant without a duplicate symbol. Source code that says
 * `executorch::extension::arenas::...` compiles with either.
 */

#ifdef USE_ATEN_LIB
#define ET_ARENAS_NAMESPACE arenas::aten
namespace executorch {
namespace extension {
namespace arenas {
namespace aten {}
using namespace aten;
}  // namespace arenas
}  // namespace extension
}  // namespace executorch
#else
#define ET_ARENAS_NAMESPACE arenas
#endif

/// Marks what a shared library of this extension exports. Everything is
/// compiled with hidden visibility, and whoever links the extension statically
/// exports none of it.
#if defined(ET_ARENAS_SHARED) && !defined(_WIN32)
#define ET_ARENAS_API __attribute__((visibility("default")))
#else
#define ET_ARENAS_API
#endif
