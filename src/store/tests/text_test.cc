// Text from outside: JSON that is nested without end or has values of the wrong type, and text that
// would command the terminal it is shown on.
#include <initializer_list>

#include "store/io/json_text.h"
#include "store/io/printable.h"
#include "tests/catch.h"

using namespace gpuckpt::store;

namespace {

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

}  // namespace

TEST_CASE("JSON nested deeper than any of ours is none") {
  CHECK(parse_json(nested(kMaxJsonDepth)).is_array());
  CHECK(parse_json(nested(kMaxJsonDepth + 1)).is_discarded());
  CHECK(parse_json(nested(4'000'000)).is_discarded());
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  CHECK(parse_json(objects).is_discarded());
  CHECK(parse_json(R"({"a":"[[[[\"[[[["})")["a"] == "[[[[\"[[[[");
  CHECK(parse_json("\"" + std::string(1000, '[') + "\"").is_string());
  // Neither a string that does not end nor one that ends in a backslash is read past its end.
  for (const char* text : {"", "\"", "\"\\", "[\"\\", "]]]]", "{\"a\":\"\\\"}"})
    CHECK(parse_json(text).is_discarded());
}

TEST_CASE("a value of another type is no value") {
  const auto j =
      parse_json(R"({"text":"t","number":7,"less":-7,"half":0.5,"list":[1],"none":null})");
  CHECK(json_text(j, "text") == "t");
  CHECK(json_number(j, "number") == 7);
  for (const char* key : {"number", "less", "half", "list", "none", "absent"})
    CHECK(json_text(j, key, "other") == "other");
  for (const char* key : {"text", "less", "half", "list", "none", "absent"})
    CHECK(json_number(j, key, 3) == 3);
  for (const char* text : {"[]", "7", "null", "nonsense"}) {
    CHECK(json_text(parse_json(text), "a").empty());
    CHECK(json_number(parse_json(text), "a") == 0);
  }
}

TEST_CASE("nothing that is shown commands a terminal") {
  CHECK(printable("plain, \"quoted\" and äöü \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "plain, \"quoted\" and äöü \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(printable("a\x1b[2Jb\rc\nd\te\x7f") == "a?[2Jb?c?d?e?");
  CHECK(printable("a\nb\tc\x1b", "\n\t") == "a\nb\tc?");
  CHECK(printable("\xc2\x9b"
                  "2J") == "?2J");  // CSI of eight bits, in UTF-8
  CHECK(printable("\x9b"
                  "2J") == "?2J");  // and alone
  CHECK(printable("a\xe2\x80\xae"
                  "b") == "a?b");  // text from right to left
  CHECK(printable("\xc0\x9b \xe0\x80\x9b \xed\xa0\x80 \xf4\x90\x80\x80")
            .find_first_of("\xc0\xe0\xed\xf4") ==
        std::string::npos);              // overlong, surrogate, too large
  CHECK(printable("\xe2\x82") == "??");  // cut off
  CHECK(printable(std::string("a\0b", 3)) == "a?b");
  const std::string json = "[\"a\x7f\xc2\x9b\xe2\x80\xae\xe2\x82\xac\"]";
  CHECK(printable_json(json) == "[\"a\\u007f\\u009b\\u202e\xe2\x82\xac\"]");
  CHECK(parse_json(printable_json(json)) == parse_json(json));
  for (int c = 0; c < 256; ++c) {
    const std::string one = printable(std::string(1, static_cast<char>(c)));
    CHECK(one == (c >= 0x20 && c < 0x7f ? std::string(1, static_cast<char>(c)) : "?"));
  }
}
