#include "store/io/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cstdint>
#include <string_view>

namespace gpuckpt::store {
namespace {

// The length of the UTF-8 character at the beginning of the text; 0: there is none.
size_t character(std::string_view text, uint32_t* code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80           ? 1
                        : (byte(0) >> 5) == 0x6  ? 2
                        : (byte(0) >> 4) == 0xe  ? 3
                        : (byte(0) >> 3) == 0x1e ? 4
                                                 : 0;
  if (!length || length > text.size()) return 0;
  *code = length == 1 ? byte(0) : byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    *code = *code << 6 | (byte(i) & 0x3f);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return *code >= kLeast[length] && *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff) ? length
                                                                                            : 0;
}

// Whether a terminal acts on the character: controls, line ends, and marks that change the
// direction of text.
bool commands(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 ||
         code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

// The text with '?' for what is not UTF-8 and for the characters that are `unwanted`.
template <typename Unwanted>
std::string replace(const std::string& text, const Unwanted& unwanted) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t length = character(std::string_view(text).substr(at), &code);
    if (length && !unwanted(code))
      out.append(text, at, length);
    else
      out += '?';
    at += length ? length : 1;
  }
  return out;
}

}  // namespace

std::string printable(const std::string& text, const std::string& kept) {
  return replace(text, [&](uint32_t code) {
    const bool plain = code < 0x80 && kept.find(static_cast<char>(code)) != std::string::npos;
    return !plain && commands(code);
  });
}

std::string replace_invalid_utf8(const std::string& text) {
  return replace(text, [](uint32_t) { return false; });
}

std::string printable_json(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (size_t at = 0; at < json.size();) {
    uint32_t code = 0;
    const size_t length = character(std::string_view(json).substr(at), &code);
    if (length && code >= 0x20 && commands(code)) {
      char text[8];
      snprintf(text, sizeof(text), "\\u%04x", code & 0xffff);  // (no such character is above)
      out += text;
    } else {
      out.append(json, at, length ? length : 1);
    }
    at += length ? length : 1;
  }
  return out;
}

void say(const char* pattern, ...) {
  char* text = nullptr;
  va_list args;
  va_start(args, pattern);
  const int length = vasprintf(&text, pattern, args);
  va_end(args);
  if (length < 0) return;
  const std::string plain = printable(text, "\n\t");
  fwrite(plain.data(), 1, plain.size(), stderr);
  free(text);
}

}  // namespace gpuckpt::store
