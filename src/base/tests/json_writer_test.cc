// The JSON that the library writes inside the application: nesting, escapes, and a text that does
// not fit.
#include "base/text/json_writer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text/text.h"

namespace {

using namespace gpuckpt;

void is(const char* got, const char* expected) {
  if (!strcmp(got, expected)) return;
  fprintf(stderr, "%s is not %s\n", got, expected);
  exit(1);
}

}  // namespace

int main() {
  char buffer[512];
  {
    Text t(buffer, sizeof(buffer));
    JsonWriter json(&t);
    json.begin_object();
    json.member("text", "a\"b\\c\n\x7fé");
    json.member("most", ~0ull);
    json.member("negative", -7);
    json.member("yes", true);
    json.key("none").begin_array();
    json.end_array();
    json.key("rows").begin_array();
    for (unsigned i = 0; i < 2; ++i) {
      json.begin_object();
      json.key("address").address(0x1f + i);
      json.end_object();
    }
    json.begin_array();
    json.number(uint64_t{1});
    json.string("");
    json.end_array();
    json.end_array();
    json.member("last", 0u);
    json.end_object();
    is(buffer,
       "{\"text\":\"a\\\"b\\\\c\\u000a\\u007fé\",\"most\":18446744073709551615,\"negative\":-7,"
       "\"yes\":true,"
       "\"none\":[],\"rows\":[{\"address\":\"0x1f\"},{\"address\":\"0x20\"},[1,\"\"]],\"last\":0}");
    if (t.full) return 1;
  }
  {
    Text t(buffer, 8);
    JsonWriter json(&t);
    json.string("longer than seven");
    is(buffer, "\"longer");
    if (!t.full) return 1;
  }
  return 0;
}
