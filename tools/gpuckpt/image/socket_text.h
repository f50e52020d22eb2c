// Describes a stored socket in words: kind, addresses, and its state after a restore.
#pragma once

#include <string>

#include "gpuckpt/process_format.h"

namespace gpuckpt::cli {

// "TCP 127.0.0.1:80 listening", "TCP 10.0.0.1:80 to 10.0.0.2:4711, comes back reset"
std::string socket_text(const process::Socket&);

}  // namespace gpuckpt::cli
