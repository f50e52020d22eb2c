// Sizes as users write and read them.
//
// Owner: none. Threads: pure functions. Errors: false for text that is no size.
#pragma once

#include <cstdint>
#include <string>

namespace gpuckpt::store {

// As scan_size (base/text/text.h).
bool parse_size(const std::string& text, uint64_t* out);
// "1.4 GiB"
std::string show_size(uint64_t bytes);

}  // namespace gpuckpt::store
