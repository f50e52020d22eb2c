#include "base/text/json_writer.h"

#include "base/text/text.h"

namespace gpuckpt {

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
  for (; *s; ++s) {
    const auto c = static_cast<unsigned char>(*s);
    char escaped[8] = {*s, 0};
    if (c == '"' || c == '\\')
      format(escaped, sizeof(escaped), "\\%c", c);
    else if (c < 32 || c == 127)
      format(escaped, sizeof(escaped), "\\u%04x", c);
    put(escaped);
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
  char text[24];
  format(text, sizeof(text), "\"0x%lx\"", value);
  plain(text);
}

void JsonWriter::number(uint64_t value) {
  char text[24];
  format(text, sizeof(text), "%lu", value);
  plain(text);
}

void JsonWriter::number(int64_t value) {
  char text[24];
  format(text, sizeof(text), "%ld", value);
  plain(text);
}

void JsonWriter::boolean(bool value) { plain(value ? "true" : "false"); }

}  // namespace gpuckpt
