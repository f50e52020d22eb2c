#include "stores/mirror_status.h"

#include <time.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "verb.h"

namespace gpuckpt::cli {
namespace {

std::string iso_time(int64_t ns) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<time_t>(ns / 1'000'000'000)));
}

}  // namespace

std::unique_ptr<MirrorStatus> mirror_status(store::Store& store) {
  std::vector<store::SnapshotInfo> snapshots;
  return store.list(&snapshots).ok() ? mirror_status(store, snapshots) : nullptr;
}

std::unique_ptr<MirrorStatus> mirror_status(store::Store& store,
                                            const std::vector<store::SnapshotInfo>& snapshots) {
  std::unique_ptr<store::MirrorState> state = store.mirror_state();
  if (!state) return nullptr;
  auto mirror = std::make_unique<MirrorStatus>();
  mirror->state = std::move(*state);
  for (const store::SnapshotInfo& info : snapshots) {
    if (!mirror->state.has(info.id)) mirror->behind.push_back(info.id);
  }
  return mirror;
}

nlohmann::json to_json(const MirrorStatus& mirror) {
  const store::MirrorState& state = mirror.state;
  return {{"target", state.target},
          {"current", mirror.current()},
          {"snapshots", state.snapshots.size()},
          {"newest", state.snapshots.empty() ? "" : state.snapshots.back()},
          {"behind", mirror.behind},
          {"time", state.time_ns ? iso_time(state.time_ns) : ""},
          {"time_ns", state.time_ns},
          {"error", state.error}};
}

std::string describe(const MirrorStatus& mirror) {
  const store::MirrorState& state = mirror.state;
  std::string out = fmt::format("{}: ", printable(state.target, 200));
  if (mirror.behind.empty()) {
    out += "has all";
  } else {
    out += fmt::format("{} to be copied", mirror.behind.size());
    if (!state.snapshots.empty())
      out += fmt::format(", the newest it has is {}", state.snapshots.back());
  }
  out += state.time_ns ? fmt::format(" (as of {})", iso_time(state.time_ns))
                       : " (the first time is under way, or was interrupted)";
  if (!state.error.empty()) out += "; the last time: " + printable(state.error, 300);
  return out;
}

}  // namespace gpuckpt::cli
