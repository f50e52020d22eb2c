#include "store/io/json_text.h"

namespace gpuckpt::store {
namespace {

// Counts brackets outside of strings. Text that is no JSON may be counted wrongly, and is refused
// either way.
bool is_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  if (is_deep(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
}

std::string json_text(const nlohmann::json& of, const char* key, const std::string& otherwise) {
  if (!of.is_object()) return otherwise;
  const auto it = of.find(key);
  return it != of.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

uint64_t json_number(const nlohmann::json& of, const char* key, uint64_t otherwise) {
  if (!of.is_object()) return otherwise;
  const auto it = of.find(key);
  return it != of.end() && it->is_number_unsigned() ? it->get<uint64_t>() : otherwise;
}

}  // namespace gpuckpt::store
