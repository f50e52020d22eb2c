// --status-file: tells a script the class of a failure of gpuckpt itself.
#pragma once

#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

// Replaces the file at once; nothing happens when `path` is empty or `status` is ok.
void write_status_file(const std::string& path, const store::Status& status);

}  // namespace gpuckpt::cli
