// The Python module pte_arenas.runtime._C.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "checking.h"
#include "handles.h"
#include "metadata.h"
#include "snapshots.h"

namespace nb = nanobind;

using pte_arenas::MethodHandle;
using pte_arenas::ProgramHandle;
using pte_arenas::SessionHandle;

NB_MODULE(_C, module) {
  module.doc() = "The C++ runtime of pte_arenas; use pte_arenas.runtime.";
  pte_arenas::define_checking(module);
  pte_arenas::define_metadata(module);
  pte_arenas::define_snapshots(module);

  nb::class_<ProgramHandle>(module, "Program", "A checked program.")
      .def_static("from_file", &ProgramHandle::from_file, nb::arg("path"),
                  "Maps a file; the path is encoded as `os.fsencode` does.")
      .def_static("from_bytes", &ProgramHandle::from_bytes, nb::arg("data"),
                  "Reads a program from memory, which it keeps.")
      .def("method_names", &ProgramHandle::method_names,
           "Names of the methods, in the order of the file.")
      .def("arenas", &ProgramHandle::arenas,
           nb::sig("def arenas(self) -> list[dict[str, typing.Any]]"),
           "Values for pte_arenas.layout.ArenaLayout.")
      .def("metadata", &ProgramHandle::metadata, nb::arg("method"),
           nb::sig("def metadata(self, method: str) -> MethodMeta"),
           "What the program says of a method.")
      .def("session", &ProgramHandle::session, nb::arg("arenas"),
           nb::arg("keep"), nb::arg("scratch_from").none(),
           nb::sig("def session(self, arenas: dict[str, typing.Any], keep: "
                   "bool, scratch_from: Session | None) -> Session"),
           "Allocates or borrows the arenas and gives them their initial "
           "values.")
      .def("blank_snapshot", &ProgramHandle::blank_snapshot,
           "A snapshot of zeros.")
      .def("nbytes", &ProgramHandle::nbytes, "Size of the program's file.")
      .def("read", &ProgramHandle::read, nb::arg("offset"), nb::arg("size"),
           "Bytes of the program's file.");

  nb::class_<SessionHandle>(module, "Session",
                            "Arenas and the methods loaded over them.")
      .def("load_method", &SessionHandle::load_method, nb::arg("name"),
           "Loads a method, unless it is loaded.")
      .def("unload_method", &SessionHandle::unload_method, nb::arg("name"),
           "Frees a method and the memory that is its own.")
      .def("execute",
           nb::overload_cast<const std::string&, nb::handle>(
               &SessionHandle::execute),
           nb::arg("name"), nb::arg("inputs").none(),
           nb::sig("def execute(self, name: str, inputs: "
                   "collections.abc.Sequence[typing.Any]) -> "
                   "list[typing.Any]"),
           "Runs a method, and loads it if need be.")
      .def("loaded_methods", &SessionHandle::loaded_methods,
           "Names of the loaded methods, in the order of the file.")
      .def("reset", &SessionHandle::reset, nb::arg("arena") = nb::none(),
           nb::arg("slot") = nb::none(), "Gives initial values again.")
      .def("snapshot", &SessionHandle::snapshot, nb::arg("into").none(),
           "Copies the state, into the memory of another snapshot or a new "
           "one.")
      .def("restore", &SessionHandle::restore, nb::arg("snapshot"),
           nb::arg("arenas"), "Gives arenas the state of a snapshot.")
      .def("fork", &SessionHandle::fork, nb::arg("copy_on_write"),
           "A session of equal state.")
      .def("write", &SessionHandle::write, nb::arg("file"), nb::arg("path"),
           nb::arg("head"), nb::arg("slots"),
           nb::sig("def write(self, file: int, path: str, head: bytes, slots: "
                   "collections.abc.Sequence[tuple[str, str]]) -> None"),
           "Writes the head of an open file and the bytes of slots behind it.")
      .def("slot_tensor", &SessionHandle::slot_tensor, nb::arg("arena"),
           nb::arg("slot"),
           nb::sig("def slot_tensor(self, arena: str, slot: str) -> "
                   "torch.Tensor"),
           "A view of a slot, which keeps the session alive.")
      .def("clone_slot", &SessionHandle::clone_slot, nb::arg("arena"),
           nb::arg("slot"),
           nb::sig("def clone_slot(self, arena: str, slot: str) -> "
                   "torch.Tensor"),
           "A tensor of the caller's with the slot's elements.")
      .def("copy_to_slot", &SessionHandle::copy_to_slot, nb::arg("arena"),
           nb::arg("slot"), nb::arg("tensor").none(),
           nb::sig("def copy_to_slot(self, arena: str, slot: str, tensor: "
                   "torch.Tensor) -> None"),
           "Copies the elements of a tensor into the slot.");

  nb::class_<MethodHandle>(module, "Method", "A method of a session.")
      .def_prop_ro("name", &MethodHandle::name, "Name of the method.")
      .def_prop_ro("metadata", &MethodHandle::metadata,
                   nb::sig("def metadata(self) -> MethodMeta"),
                   "What the program says of the method.")
      .def("execute", &MethodHandle::execute, nb::arg("inputs").none(),
           nb::sig("def execute(self, inputs: "
                   "collections.abc.Sequence[typing.Any]) -> "
                   "list[typing.Any]"),
           "Runs the method; the outputs are the caller's own.");
}
