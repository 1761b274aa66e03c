#include "message.h"

#include <cstring>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

void Message::put(std::string_view text) {
  const size_t room = capacity_ - 1 - length_;
  const size_t size = text.size() < room ? text.size() : room;
  if (size > 0) {
    std::memcpy(buffer_ + length_, text.data(), size);
  }
  length_ += size;
  buffer_[length_] = '\0';
}

void Message::put_unsigned(uint64_t number) {
  char digits[20];  // 2^64 - 1 has 20
  size_t first = sizeof(digits);
  do {
    digits[--first] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  put(std::string_view(digits + first, sizeof(digits) - first));
}

void Message::put_signed(int64_t number) {
  if (number < 0) {
    put("-");
    put(uint64_t{0} - static_cast<uint64_t>(number));
  } else {
    put(static_cast<uint64_t>(number));
  }
}

void Message::put(Name name) {
  std::string_view rest = name.text;
  put("'");
  for (size_t i = 0; i < kMaxNameLength && !rest.empty(); ++i) {
    uint32_t code_point = 0;
    const size_t size = decode_utf8(rest, &code_point);
    if (size == 0) {
      break;  // names are checked to be UTF-8 before they are printed
    }
    put_escaped(code_point);
    rest.remove_prefix(size);
  }
  put(rest.empty() ? "'" : "...'");
}

void Message::put(Bytes bytes) {
  put("[");
  put(bytes.begin);
  put(", ");
  if (bytes.length > UINT64_MAX - bytes.begin) {
    put("2^64 or more");
  } else {
    put(bytes.begin + bytes.length);
  }
  put(")");
}

void Message::put(DeviceName device) {
  if (device.type == 0 || device.type == 1) {
    put(device.type == 0 ? "cpu" : "cuda");
  } else {
    put(int64_t{device.type});
  }
  put(":");
  put(int64_t{device.index});
}

void Message::put_escaped(uint32_t code_point) {
  constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  const size_t special = code_point < 0x80
                             ? kSpecial.find(static_cast<char>(code_point))
                             : std::string_view::npos;
  if (special != std::string_view::npos) {
    put("\\");
    put(kLetters.substr(special, 1));
  } else if (code_point >= 0x20 && code_point < 0x7f) {
    const char letter = static_cast<char>(code_point);
    put(std::string_view(&letter, 1));
  } else if (code_point < 0x10000) {
    put_unicode_escape(code_point);
  } else {  // a surrogate pair, as in JSON
    put_unicode_escape(0xd800 + ((code_point - 0x10000) >> 10));
    put_unicode_escape(0xdc00 + ((code_point - 0x10000) & 0x3ff));
  }
}

void Message::put_unicode_escape(uint32_t code_unit) {
  constexpr char kHex[] = "0123456789abcdef";
  const char escape[] = {'\\',
                         'u',
                         kHex[code_unit >> 12 & 15],
                         kHex[code_unit >> 8 & 15],
                         kHex[code_unit >> 4 & 15],
                         kHex[code_unit & 15]};
  put(std::string_view(escape, sizeof(escape)));
}

runtime::Error refuse_structure(Finding* finding) {
  write_path(finding, "program");
  return refuse(finding,
                "expected a well-formed ExecuTorch program but found damaged "
                "or truncated data");
}

size_t decode_utf8(std::string_view text, uint32_t* code_point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    *code_point = first;
    return 1;
  }
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) {
    return 0;
  }
  uint32_t value = first & (0x7fU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
    value = value << 6 | (byte(i) & 0x3f);
  }
  const bool overlong =
      (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (overlong || surrogate || value > 0x10ffff) {
    return 0;
  }
  *code_point = value;
  return size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    uint32_t code_point = 0;
    const size_t size = decode_utf8(text, &code_point);
    if (size == 0) {
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
