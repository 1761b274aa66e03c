#include "raising.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>

namespace nb = nanobind;

namespace pte_arenas {
namespace {

template <typename... Args>
[[noreturn]] void raise(const char* name, Args... args) {
  const nb::object type = nb::module_::import_("pte_arenas.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(args...).ptr());
  throw nb::python_error();
}

}  // namespace

void raise_invalid_program(
    const executorch::extension::arenas::Finding& finding) {
  raise("InvalidProgramError", nb::str(finding.path), nb::str(finding.message));
}

void raise_invalid_program(const std::string& where,
                           const std::string& message) {
  raise("InvalidProgramError", nb::str(where.c_str(), where.size()),
        nb::str(message.c_str(), message.size()));
}

void raise_finding(executorch::runtime::Error error,
                   const executorch::extension::arenas::Finding& finding) {
  using executorch::runtime::Error;
  const std::string sentence =
      std::string(finding.path) + ": " + finding.message;
  switch (error) {
    case Error::MemoryAllocationFailed:
      raise_memory_error(sentence);
    case Error::NotSupported:
    case Error::OperatorMissing:
      raise_runtime_error(sentence);
    case Error::InvalidArgument:  // the message names the arena
      raise_wrong_use(finding.message);
    default:
      raise_invalid_program(finding);
  }
}

void raise_wrong_use(const std::string& message) {
  raise("ArenaError", nb::str(message.c_str(), message.size()));
}

void raise_value_error(const std::string& message) {
  throw nb::value_error(message.c_str());
}

void raise_type_error(const std::string& message) {
  throw nb::type_error(message.c_str());
}

void raise_index_error(const std::string& message) {
  throw nb::index_error(message.c_str());
}

void raise_memory_error(const std::string& message) {
  PyErr_SetString(PyExc_MemoryError, message.c_str());
  throw nb::python_error();
}

void raise_os_error(int error, nb::handle path) {
  errno = error;
  PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
  throw nb::python_error();
}

void raise_runtime_error(const std::string& message) {
  PyErr_SetString(PyExc_RuntimeError, message.c_str());
  throw nb::python_error();
}

void raise_runtime_error(const std::string& what,
                         executorch::runtime::Error error) {
  raise_runtime_error(what + " failed with " + name_of(error));
}

std::string name_of(executorch::runtime::Error error) {
  char code[16];
  std::snprintf(code, sizeof(code), " (0x%x)", static_cast<unsigned>(error));
  return executorch::runtime::to_string(error) + std::string(code);
}

}  // namespace pte_arenas
