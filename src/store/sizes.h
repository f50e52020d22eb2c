// Sizes as people write and read them.
#pragma once

#include <cstdint>
#include <string>

namespace gpuckpt::store {

// "4096", "64K", "1.5G", "2T" (powers of 1024; a final "B" or "iB" is allowed). False: none of
// these.
bool parse_size(const std::string& text, uint64_t* out);
// "1.4 GiB"
std::string show_size(uint64_t bytes);

}  // namespace gpuckpt::store
