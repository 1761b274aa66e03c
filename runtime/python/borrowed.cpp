#include "borrowed.h"

#include <utility>

#include "raising.h"
#include "torch_exchange.h"
#include "words.h"

namespace nb = nanobind;

namespace pte_arenas {

BorrowedMemory::BorrowedMemory(std::string arena, nb::handle object)
    : arena_(std::move(arena)) {
  if (TorchExchange::get().is_tensor(object)) {
    borrow_tensor(object);
  } else {
    borrow_buffer(object);
  }
}

BorrowedMemory::~BorrowedMemory() {
  if (Py_IsInitialized()) {  // wherever the last user lets it go
    const nb::gil_scoped_acquire gil;
    PyBuffer_Release(&buffer_);
  }
}

void BorrowedMemory::borrow_tensor(nb::handle tensor) {
  dlpack::Tensor described;
  const bool is_readable = TorchExchange::get().describe(tensor, &described) &&
                           described.device.type == dlpack::kCpu;
  if (!is_readable || !nb::cast<bool>(tensor.attr("is_contiguous")())) {
    raise_value_error("arena '" + arena_ +
                      "': expected a contiguous tensor on cpu but found " +
                      found_in_words(tensor) +
                      (is_readable ? " with gaps or in another order" : ""));
  }
  size_t nbytes = described.dtype.bits / 8;
  for (int32_t d = 0; d < described.ndim; ++d) {
    nbytes *= static_cast<size_t>(described.shape[d]);
  }
  span_ = {static_cast<uint8_t*>(described.data) + described.byte_offset,
           nbytes};
  buffer_.obj = nb::object(nb::borrow(tensor)).release().ptr();
}

void BorrowedMemory::borrow_buffer(nb::handle object) {
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_CONTIG) != 0) {
    PyErr_Clear();
    raise_type_error("arena '" + arena_ +
                     "': expected a tensor or a writable contiguous buffer but "
                     "found " +
                     found_in_words(object));
  }
  span_ = {static_cast<uint8_t*>(buffer_.buf),
           static_cast<size_t>(buffer_.len)};
}

}  // namespace pte_arenas
