// Text of other programs (names, paths, command lines, descriptions in snapshots) before it is
// written to a terminal: no part of it can act as a command of the terminal.
//
// Owner: none. Threads: any. Errors: none.
#pragma once

#include <string>

namespace gpuckpt::store {

// Replaces control characters (those of Unicode, too) and invalid UTF-8 by '?', except those in
// `kept`.
std::string printable(const std::string& text, const std::string& kept = "");

// Replaces what is not UTF-8 by '?', a byte by one. Control characters stay.
std::string replace_invalid_utf8(const std::string& text);

// The same JSON on one line, with control characters, which the JSON library leaves in strings, as
// "\uXXXX".
std::string printable_json(const std::string& json);

// Prints to stderr, as printf would; line ends and tabs stay.
__attribute__((format(printf, 1, 2))) void say(const char* pattern, ...);

}  // namespace gpuckpt::store
