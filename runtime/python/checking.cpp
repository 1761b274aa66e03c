#include "checking.h"

#include <executorch/extension/arenas/arena_table.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "message.h"
#include "raising.h"
#include "structure.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::internal::ProgramHeader;
using executorch::extension::arenas::internal::read_header;
using executorch::extension::arenas::internal::refuse_structure;
using executorch::extension::arenas::internal::verify_structure;
using executorch::runtime::Error;
using executorch::runtime::Span;

namespace {

/// The memory of a Python object, as long as this lives; aligned for a parser.
class Buffer final {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      throw nb::python_error();
    }
    const auto address = reinterpret_cast<uintptr_t>(view_.buf);
    if (address % alignof(std::max_align_t) != 0) {
      copy_.reset(new std::max_align_t[size() / sizeof(std::max_align_t) + 1]);
      std::memcpy(copy_.get(), view_.buf, size());
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  size_t size() const { return static_cast<size_t>(view_.len); }

  Span<const uint8_t> span() const {
    const void* const data = copy_ ? copy_.get() : view_.buf;
    return {static_cast<const uint8_t*>(data), size()};
  }

 private:
  Py_buffer view_;
  std::unique_ptr<std::max_align_t[]> copy_;
};

void verify(nb::handle data) {
  const Buffer buffer(data);
  ProgramHeader header;
  if (!read_header(buffer.span(), buffer.size(), &header) ||
      !verify_structure(buffer.span(), header, buffer.size()).present()) {
    Finding finding;
    (void)refuse_structure(&finding);
    raise_invalid_program(finding);
  }
}

void check(nb::handle data) {
  const Buffer buffer(data);
  Finding finding;
  const Error error =
      ArenaTable::parse(buffer.span(), buffer.size(), &finding).error();
  if (error == Error::InvalidProgram) {
    raise_invalid_program(finding);
  }
  if (error != Error::Ok) {
    raise_runtime_error("check", error);
  }
}

}  // namespace

void define_checking(nb::module_& module) {
  module.def("verify", &verify, nb::arg("data"),
             nb::sig("def verify(data: typing_extensions.Buffer) -> None"),
             "Checks the structure of a program, before anything reads it.\n\n"
             "Raises:\n"
             "    InvalidProgramError: The data is damaged or truncated.");
  module.def("check", &check, nb::arg("data"),
             nb::sig("def check(data: typing_extensions.Buffer) -> None"),
             "Checks every rule of docs/checks.md, in C++.\n\n"
             "Raises:\n"
             "    InvalidProgramError: With the first broken rule.");
}

}  // namespace pte_arenas
