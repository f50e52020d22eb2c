#include "base/text/json_writer.h"

#include "base/text/text.h"

namespace gpuckpt {
namespace {

// A program can have a million allocations to describe while it is stopped, so numbers do not pass
// through format().
template <unsigned kBase>
char* put_digits(char* end, uint64_t value) {
  do *--end = "0123456789abcdef"[value % kBase];
  while (value /= kBase);
  return end;
}

bool needs_escape(unsigned char c) { return c < 32 || c == 127 || c == '"' || c == '\\'; }

}  // namespace

void JsonWriter::put(const char* s) { put_(out_, s, length(s)); }

void JsonWriter::separate() {
  if (!first_) put(",");
  first_ = false;
}

void JsonWriter::begin(char bracket) {
  separate();
  put_(out_, &bracket, 1);
  first_ = true;
}

void JsonWriter::end(char bracket) {
  put_(out_, &bracket, 1);
  first_ = false;
}

JsonWriter& JsonWriter::key(const char* name) {
  separate();
  quoted(name);
  put(":");
  first_ = true;  // no comma before the value
  return *this;
}

void JsonWriter::quoted(const char* s) {
  put("\"");
  for (const char* run = s;; ++s) {
    const auto c = static_cast<unsigned char>(*s);
    if (c && !needs_escape(c)) continue;
    if (s != run) put_(out_, run, static_cast<size_t>(s - run));
    if (!c) break;
    char escaped[8];
    format(escaped, sizeof(escaped), c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
    put(escaped);
    run = s + 1;
  }
  put("\"");
}

void JsonWriter::string(const char* s) {
  separate();
  quoted(s);
}

void JsonWriter::plain(const char* text) {
  separate();
  put(text);
}

void JsonWriter::address(uint64_t value) {
  char text[24], *const end = text + sizeof(text) - 1;
  *end = 0;
  end[-1] = '"';
  char* begin = put_digits<16>(end - 1, value);
  *--begin = 'x', *--begin = '0', *--begin = '"';
  plain(begin);
}

void JsonWriter::number(uint64_t value) {
  char text[24], *const end = text + sizeof(text) - 1;
  *end = 0;
  plain(put_digits<10>(end, value));
}

void JsonWriter::number(int64_t value) {
  if (value >= 0) return number(static_cast<uint64_t>(value));
  char text[24], *const end = text + sizeof(text) - 1;
  *end = 0;
  char* begin = put_digits<10>(end, 0 - static_cast<uint64_t>(value));
  *--begin = '-';
  plain(begin);
}

void JsonWriter::boolean(bool value) { plain(value ? "true" : "false"); }

}  // namespace gpuckpt
