#include "status_file.h"

#include <stdio.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gpuckpt::cli {

void write_status_file(const std::string& path, const store::Status& status) {
  if (path.empty() || status.ok()) return;
  std::string pending = fmt::format("{}.{}.tmp", path, getpid());
  {
    std::ofstream out(pending);
    out << nlohmann::json({{"state", "failed"}, {"code", status.code()}, {"text", status.text()}})
               .dump()
        << "\n";
  }
  if (rename(pending.c_str(), path.c_str()) != 0) unlink(pending.c_str());
}

}  // namespace gpuckpt::cli
