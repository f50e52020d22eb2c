#include "status_file.h"

#include <string.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/new_file.h"
#include "verb.h"

namespace gpuckpt::cli {

void write_status_file(const std::string& path, const store::Status& status) {
  if (path.empty() || status.ok()) return;
  const std::string text =
      nlohmann::json({{"state", "failed"}, {"code", status.code()}, {"text", status.text()}})
          .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
      "\n";
  if (const long error = replace_file(path.c_str(), text.data(), text.size()))
    complain(fmt::format("warning: cannot write the status file {}: {}", path,
                         strerror(static_cast<int>(-error))));
}

}  // namespace gpuckpt::cli
