#include "restore/files/files_blob.h"

#include <stdio.h>
#include <stdlib.h>

#include "store/io/printable.h"

namespace gpuckpt::restore {

nlohmann::json name_to_json(const std::string& name) {
  if (store::replace_invalid_utf8(name) == name) return name;
  std::string digits;
  char two[3];
  for (const unsigned char byte : name) {
    snprintf(two, sizeof(two), "%02x", byte);
    digits += two;
  }
  return {{"hex", digits}};
}

std::string name_from_json(const nlohmann::json& j) {
  if (!j.is_object()) return j.get<std::string>();
  const std::string digits = j.at("hex").get<std::string>();
  std::string out;
  for (size_t i = 0; i + 2 <= digits.size(); i += 2)
    out += static_cast<char>(strtoul(digits.substr(i, 2).c_str(), nullptr, 16));
  return out;
}

}  // namespace gpuckpt::restore
