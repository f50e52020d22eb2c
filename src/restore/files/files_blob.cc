#include "restore/files/files_blob.h"

#include <cstdint>

#include "store/format/format.h"
#include "store/io/printable.h"

namespace gpuckpt::restore {

nlohmann::json name_to_json(const std::string& name) {
  if (store::replace_invalid_utf8(name) == name) return name;
  return {{"hex", store::hex(reinterpret_cast<const uint8_t*>(name.data()), name.size())}};
}

std::string name_from_json(const nlohmann::json& j) {
  if (!j.is_object()) return j.get<std::string>();
  const std::string digits = j.at("hex").get<std::string>();
  std::string out(digits.size() / 2, 0);
  // (No name: those who read it want an absolute path.)
  if (!store::unhex(digits, reinterpret_cast<uint8_t*>(out.data()), out.size())) out.clear();
  return out;
}

}  // namespace gpuckpt::restore
