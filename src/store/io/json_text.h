// JSON from outside (files, other programs, remotes), read safely whatever it says.
//
// The JSON library writes and compares by recursion, so that deeply nested text overflows the stack
// of a program that shows it; and it throws where a value has another type than is asked for. All
// JSON from files, other programs and remotes comes through here.
//
// Owner: none. Threads: pure functions. Errors: a discarded value, or `otherwise`.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gpuckpt::store {

inline constexpr int kMaxJsonDepth = 64;  // our own documents are 6 deep at most

// Parses. The value is discarded (is_discarded(), and no object or array) when the text is no JSON,
// or nested deeper.
nlohmann::json parse_json(std::string_view text);
inline nlohmann::json parse_json(std::span<const uint8_t> text) {
  return parse_json(std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
}

// The value at `key`; `otherwise` when `of` has none, or when it has another type or is out of
// range.
std::string json_text(const nlohmann::json& of, const char* key, const std::string& otherwise = "");
uint64_t json_number(const nlohmann::json& of, const char* key, uint64_t otherwise = 0);

}  // namespace gpuckpt::store
