// Text of other programs (names, paths, command lines, descriptions in snapshots) before it is
// written to a terminal: no part of it can act as a command of the terminal.
//
// Owner: none. Threads: any. Errors: none.
#pragma once

#include <string>

namespace gpuckpt::store {

// Control characters (those of Unicode, too) and what is no UTF-8 become '?', but for those in
// `kept`.
std::string printable(const std::string& text, const std::string& kept = "");

// JSON on one line as JSON that says the same: what the library that wrote it leaves in strings
// becomes "\uXXXX".
std::string printable_json(const std::string& json);

// To stderr, as printf would; line ends and tabs stay.
__attribute__((format(printf, 1, 2))) void say(const char* pattern, ...);

}  // namespace gpuckpt::store
