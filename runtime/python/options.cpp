#include "options.h"

#include <executorch/extension/arenas/arena_program.h>
#include <nanobind/stl/string.h>

#include <array>
#include <climits>
#include <cstring>
#include <string>

#include "raising.h"
#include "words.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::LoadMode;
using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::kMaxOptionKeyLength;
using executorch::runtime::kMaxOptionValueLength;
using executorch::runtime::OptionValue;

namespace {

std::string text_of(nb::handle key, const std::string& where) {
  if (!nb::isinstance<nb::str>(key)) {
    raise_type_error(where + ": expected a str as a key but found " +
                     found_in_words(key));
  }
  return nb::cast<std::string>(key);
}

OptionValue value_of(nb::handle value, const std::string& where) {
  if (PyBool_Check(value.ptr())) {
    return value.is(nb::bool_(true));
  }
  if (PyLong_Check(value.ptr())) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0 && number >= INT_MIN && number <= INT_MAX) {
      return static_cast<int>(number);
    }
    raise_value_error(where + ": expected an int of 32 bits but found " +
                      repr_of(value));
  }
  if (!PyUnicode_Check(value.ptr())) {
    raise_type_error(where + ": expected a bool, an int or a str but found " +
                     found_in_words(value));
  }
  const auto text = nb::cast<std::string>(value);
  std::array<char, kMaxOptionValueLength> chars{};
  if (text.size() >= chars.size()) {
    raise_value_error(where + ": expected at most " +
                      std::to_string(chars.size() - 1) + " bytes but found " +
                      std::to_string(text.size()));
  }
  std::memcpy(chars.data(), text.data(), text.size());
  return chars;
}

std::vector<BackendOption> options_of(const nb::dict& options,
                                      const std::string& where) {
  std::vector<BackendOption> list;
  for (const auto& [key, value] : options) {
    const std::string name = text_of(key, where);
    const std::string at = where + "[" + repr_of(key) + "]";
    if (name.size() >= kMaxOptionKeyLength) {
      raise_value_error(at + ": expected a name of at most " +
                        std::to_string(kMaxOptionKeyLength - 1) +
                        " bytes but found " + std::to_string(name.size()));
    }
    BackendOption option;
    std::memcpy(option.key, name.data(), name.size());
    option.value = value_of(value, at);
    list.push_back(option);
  }
  return list;
}

}  // namespace

BackendOptions::BackendOptions(const nb::dict& backends) {
  for (const auto& [key, value] : backends) {
    const std::string name = text_of(key, "backend_options");
    const std::string at = "backend_options[" + repr_of(key) + "]";
    if (!nb::isinstance<nb::dict>(value)) {
      raise_type_error(at + ": expected a dict but found " +
                       found_in_words(value));
    }
    options_.push_back(options_of(nb::borrow<nb::dict>(value), at));
    const Error error = map_.set_options(
        name.c_str(), {options_.back().data(), options_.back().size()});
    if (error != Error::Ok) {
      raise_runtime_error(at, error);
    }
  }
}

void define_options(nb::module_& module) {
  nb::enum_<LoadMode>(module, "LoadMode",
                      "How the bytes of a file come into memory.")
      .value("Mmap", LoadMode::Mmap, "Pages of the file, read when touched.")
      .value("MmapUseMlock", LoadMode::MmapUseMlock,
             "The same, read and locked; an error where the system forbids it.")
      .value("MmapUseMlockIgnoreErrors", LoadMode::MmapUseMlockIgnoreErrors,
             "The same, locked where the system allows it.")
      .value("MmapUseMadvise", LoadMode::MmapUseMadvise,
             "Pages of the file, which the system is told to read ahead.")
      .value("File", LoadMode::File, "Read into memory of the process.");
  using Verification = ArenaProgram::Program::Verification;
  nb::enum_<Verification>(module, "Verification",
                          "What ExecuTorch verifies when it loads a program.")
      .value("Minimal", Verification::Minimal, "That it is a program.")
      .value("InternalConsistency", Verification::InternalConsistency,
             "That its tables lie inside it.");
}

}  // namespace pte_arenas
