// Names of spaces as the verbs print them.
#pragma once

#include <string>

#include <fmt/format.h>

#include "gpuckpt/wire.h"

namespace gpuckpt::cli {

inline std::string space_name(uint64_t space) {
  if (const uint64_t member = space >> wire::kMemberShift)
    return fmt::format("process {}: {}", member, space_name(space & wire::kPlainSpace));
  if (space == wire::kSpaceHost) return "host";
  if (space >= wire::kSpaceDeviceBase)
    return fmt::format("device {}", space - wire::kSpaceDeviceBase);
  if (space >= wire::kSpaceStoredBase)
    return fmt::format("stored file {}", space - wire::kSpaceStoredBase);
  if (space >= wire::kSpaceFileBase) return fmt::format("file {}", space - wire::kSpaceFileBase);
  return fmt::format("shared {}", space - wire::kSpaceSharedBase);
}

}  // namespace gpuckpt::cli
