#include "store/format/sizes.h"

#include <fmt/format.h>

#include "base/text/text.h"

namespace gpuckpt::store {

bool parse_size(const std::string& text, uint64_t* out) { return scan_size(text.c_str(), out); }

std::string show_size(uint64_t bytes) {
  static const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1023.95 && unit < 4) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

}  // namespace gpuckpt::store
