#include "store/io/job_line.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/json_text.h"
#include "store/io/remote.h"

namespace gpuckpt::store {
namespace {

std::string text(const nlohmann::json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

uint64_t number(const nlohmann::json& j, const char* key) {
  return j.contains(key) && j[key].is_number_unsigned() ? j[key].get<uint64_t>() : 0;
}

// Calls each(id, meta) from the newest on until it returns true.
template <typename Each>
Status look_back(Env* env, const Paths& paths, const Each& each) {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env, paths, &ids); !status.ok()) return status;
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    std::string meta;
    uint64_t length = 0;
    const Status read =
        read_manifest_meta(env, paths.manifest(*it), paths.keys.get(), &meta, &length);
    if (read.code() == kExitAbsent) continue;  // pruned meanwhile
    if (!read.ok()) meta.clear();
    if (each(*it, meta)) break;
  }
  return Status::Ok();
}

}  // namespace

std::vector<JobLine::Cut>& JobLine::cuts_of(const std::string& job) {
  auto [it, added] = cuts_.try_emplace(job);
  // A mirror has no leases; there the descriptions of the snapshots alone decide.
  if (added && !is_remote(paths_.root)) {
    Lease lease;
    if (read_lease(env_, paths_.root, job, &lease).ok() && lease.has_base)
      it->second.push_back({lease.fence, lease.base});
  }
  return it->second;
}

bool JobLine::is_branch(const std::string& id, const std::string& meta) {
  auto j = parse_json(meta);
  if (!j.is_object()) return false;
  std::vector<Cut>& cuts = cuts_of(text(j, "job"));
  const uint64_t fence = number(j, "fence");
  if (j.contains("branch") && j["branch"] == true) return true;
  if (std::any_of(cuts.begin(), cuts.end(),
                  [&](const Cut& cut) { return cut.fence > fence && id > cut.base; }))
    return true;
  if (fence && j.contains("base") &&
      std::none_of(cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.fence == fence; }))
    cuts.push_back({fence, text(j, "base")});
  return false;
}

Status newest_of_line(Env* env, const Paths& paths, const std::string& job, std::string* id) {
  id->clear();
  JobLine line(env, paths);
  return look_back(env, paths, [&](const std::string& candidate, const std::string& meta) {
    auto j = parse_json(meta);
    if (!j.is_object() || text(j, "job") != job || line.is_branch(candidate, meta)) return false;
    *id = candidate;
    return true;
  });
}

Status newest_of_all(Env* env, const Paths& paths, std::string* id) {
  id->clear();
  JobLine line(env, paths);
  return look_back(env, paths, [&](const std::string& candidate, const std::string& meta) {
    if (line.is_branch(candidate, meta)) return false;
    *id = candidate;
    return true;
  });
}

Status take_job(Env* env, const Paths& paths, const LeaseRequest& request, Lease* out) {
  if (Status status = take_lease(env, paths.root, request, out); !status.ok()) return status;
  if (out->has_base) return Status::Ok();
  std::string newest;
  Status status = newest_of_line(env, paths, request.job, &newest);
  return status.ok() ? set_base(env, paths.root, newest, out) : status;
}

Status place_in_line(Env* env, const Paths& paths, const LeaseRequest& request,
                     nlohmann::json* meta, std::string* warning) {
  warning->clear();
  Lease lease;
  if (Status status = read_lease(env, paths.root, request.job, &lease); !status.ok()) return status;
  if (!request.run.empty()) (*meta)["run"] = request.run;
  // Snapshots of programs without a job's name are unrelated, unless one of them was to be resumed.
  const bool may_take = !request.job.empty() && !request.run.empty();
  const bool holds = lease.life != Lease::Life::kNone && lease.run == request.run;
  if (!holds && (lease.life == Lease::Life::kNone || lease.free()) &&
      !lease.was_held_by(request.run)) {
    if (!may_take) return Status::Ok();
    std::string newest;
    if (Status status = newest_of_line(env, paths, request.job, &newest); !status.ok())
      return status;
    const std::string parent = text(*meta, "parent");
    if (parent.empty() || parent == newest) {
      const Status taken = take_job(env, paths, request, &lease);
      if (!taken.ok() && taken.code() != kExitLocked) return taken;
    }
    if (lease.run != request.run) {
      if (Status status = read_lease(env, paths.root, request.job, &lease); !status.ok())
        return status;
    }
  }
  if (lease.run == request.run && lease.life != Lease::Life::kNone) {
    (*meta)["fence"] = lease.fence;
    if (lease.has_base) (*meta)["base"] = lease.base;
    return Status::Ok();
  }
  (*meta)["branch"] = true;
  *warning = fmt::format(
      "this run does not have job \"{}\" any more, or never had it (it belongs to {}): the "
      "snapshot "
      "is a branch, which `latest` and --resume auto do not take; restore it by its id",
      request.job, holder(lease));
  return Status::Ok();
}

}  // namespace gpuckpt::store
