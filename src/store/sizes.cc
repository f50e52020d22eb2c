#include "store/sizes.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace gpuckpt::store {

bool parse_size(const std::string& text, uint64_t* out) {
  if (text.empty() || !(text[0] >= '0' && text[0] <= '9')) return false;
  char* end = nullptr;
  double value = strtod(text.c_str(), &end);
  std::string unit = end;
  static const std::string letters = "KMGTPE";
  size_t power = 0;
  if (!unit.empty() && unit != "B") {
    char c = unit[0] >= 'a' && unit[0] <= 'z' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
    size_t at = letters.find(c);
    std::string rest = unit.substr(1);
    if (at == std::string::npos || !(rest.empty() || rest == "B" || rest == "iB" || rest == "b"))
      return false;
    power = at + 1;
  }
  value = std::ldexp(value, static_cast<int>(10 * power));
  if (!(value < 1.8e19)) return false;
  *out = static_cast<uint64_t>(value);
  return true;
}

std::string show_size(uint64_t bytes) {
  static const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1023.95 && unit < 4) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

}  // namespace gpuckpt::store
