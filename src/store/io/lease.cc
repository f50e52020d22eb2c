#include "store/io/lease.h"

#include <errno.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "store/format/format.h"
#include "store/io/json_text.h"
#include "store/io/process_identity.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

constexpr const char* kSuffix = ".lease";
constexpr size_t kFenceDigits = 16;
constexpr size_t kRemembered = 32;  // earlier runs
// A run that took its last snapshot does not renew its lease any more. The lease is respected this
// long, because the program makes no further step and only has to end.
constexpr uint64_t kLeavingMs = 3'000;
// How long a new pod waits for one that was lost; the lease is renewed four times as often.
constexpr uint64_t kStandardTtlMs = 30'000;

std::string directory(const std::string& store) { return store + "/jobs"; }

// A prefix of file names for a job, whose own name may have any characters and be too long for a
// file.
std::string job_prefix(const std::string& job) {
  XXH128_canonical_t name;
  XXH128_canonicalFromHash(&name, XXH3_128bits(job.data(), job.size()));
  return hex(name.digest, sizeof(name.digest)) + ".";
}

std::string file_of(const std::string& job, uint64_t fence) {
  return fmt::format("{}{:016x}{}", job_prefix(job), fence, kSuffix);
}

// The fencing numbers of the job's leases, ascending.
Status list_fences(Env* env, const std::string& store, const std::string& job,
                   std::vector<uint64_t>* out) {
  out->clear();
  std::vector<std::string> names;
  const int error = env->list(directory(store), &names);
  if (error == ENOENT) return Status::Ok();
  if (error) return io_error("list", directory(store), error);
  const std::string prefix = job_prefix(job);
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix) ||
        name.size() != prefix.size() + kFenceDigits + strlen(kSuffix))
      continue;
    uint8_t bytes[kFenceDigits / 2];
    if (!unhex(name.substr(prefix.size(), kFenceDigits), bytes, sizeof(bytes))) continue;
    uint64_t fence = 0;
    for (uint8_t byte : bytes) fence = fence << 8 | byte;
    out->push_back(fence);
  }
  std::sort(out->begin(), out->end());
  return Status::Ok();
}

// The current time of the file system, because the clocks of other machines may differ from ours.
Status file_system_time(Env* env, const std::string& store, int64_t* now_ns) {
  uint8_t random[8] = {};
  env->random(random, sizeof(random));
  const std::string path = directory(store) + "/now." + hex(random, sizeof(random)) + ".tmp";
  std::unique_ptr<File> file;
  if (int e = env->create(path, &file)) {
    // A process that may only read the store uses the wall clock.
    if (e != EACCES && e != EPERM && e != EROFS && e != ENOSPC && e != EDQUOT)
      return io_error("create", path, e);
    *now_ns = env->now_ns();
    return Status::Ok();
  }
  file.reset();
  FileInfo info;
  const int error = env->info(path, &info);
  env->remove(path);
  if (error) return io_error("look at", path, error);
  *now_ns = info.mtime_ns;
  return Status::Ok();
}

struct Record {
  nlohmann::json json;
  int64_t mtime_ns = 0;
};

Status read_record(Env* env, const std::string& path, Record* out) {
  // The file is opened before its times are read, so that a network file system asks the server for
  // them.
  std::vector<uint8_t> text;
  if (Status status = read_file(env, path, 64 * 1024, &text); !status.ok()) return status;
  FileInfo info;
  if (int e = env->info(path, &info)) return io_error("look at", path, e);
  out->mtime_ns = info.mtime_ns;
  out->json = parse_json(text);
  if (!out->json.is_object()) out->json = nlohmann::json::object();
  return Status::Ok();
}

bool is_here(const nlohmann::json& j) {
  return j.value("boot", "") == boot_id() &&
         j.value("pid_namespace", uint64_t{0}) == pid_namespace();
}

Lease::Life life_of(const nlohmann::json& j, const Lease& lease) {
  const std::string state = j.value("state", "");
  if (state == "ended") return Lease::Life::kEnded;
  const bool leaving = state == "leaving";
  if (is_here(j)) {
    if (start_time(lease.pid) != j.value("start_time", uint64_t{1})) return Lease::Life::kGone;
    return leaving ? Lease::Life::kLeaving : Lease::Life::kLive;
  }
  // (A file without these values is being written, or its machine lost power.)
  const uint64_t most = leaving ? std::min(lease.ttl_ms, kLeavingMs) : lease.ttl_ms;
  if (lease.age_ms > static_cast<int64_t>(most)) return Lease::Life::kExpired;
  return leaving ? Lease::Life::kLeaving : Lease::Life::kLive;
}

void decode(const Record& record, int64_t now_ns, Lease* out) {
  const nlohmann::json& j = record.json;
  out->age_ms = std::max<int64_t>(0, (now_ns - record.mtime_ns) / 1'000'000);
  out->ttl_ms = LeaseRequest().ttl_ms;
  try {
    out->run = j.value("run", "");
    out->host = j.value("host", "");
    out->pid = j.value("pid", int64_t{0});
    out->ttl_ms = j.value("ttl_ms", out->ttl_ms);
    out->has_base = j.contains("base");
    out->base = j.value("base", "");
    out->before = j.value("before", std::vector<std::string>());
    out->life = life_of(j, *out);
  } catch (const nlohmann::json::exception&) {
    out->life = out->age_ms > static_cast<int64_t>(out->ttl_ms) ? Lease::Life::kExpired
                                                                : Lease::Life::kLive;
  }
}

Status write_record(Env* env, const std::string& store, const Lease& lease, const char* state) {
  nlohmann::json j = {{"job", lease.job},       {"run", lease.run},
                      {"fence", lease.fence},   {"host", lease.host},
                      {"boot", boot_id()},      {"pid_namespace", pid_namespace()},
                      {"pid", lease.pid},       {"start_time", start_time(lease.pid)},
                      {"ttl_ms", lease.ttl_ms}, {"state", state},
                      {"before", lease.before}};
  if (lease.has_base) j["base"] = lease.base;
  return replace_file(env, directory(store), file_of(lease.job, lease.fence), j.dump() + "\n");
}

Status lost(const Lease& now) {
  return Status::Locked(
      fmt::format("job \"{}\" belongs to another run now ({})", now.job, holder(now)));
}

// Removes earlier leases of the job, and temporary files of processes that died while they took
// one.
void sweep(Env* env, const std::string& store, const std::string& job, uint64_t fence) {
  std::vector<uint64_t> fences;
  if (!list_fences(env, store, job, &fences).ok()) return;
  for (uint64_t other : fences)
    if (other < fence) env->remove(directory(store) + "/" + file_of(job, other));
  std::vector<std::string> names;
  int64_t now = 0;
  if (env->list(directory(store), &names) || !file_system_time(env, store, &now).ok()) return;
  constexpr int64_t kAbandonedNs = 3600ll * 1'000'000'000;
  for (const std::string& name : names) {
    FileInfo info;
    const std::string path = directory(store) + "/" + name;
    if (name.ends_with(".tmp") && !env->info(path, &info) && now - info.mtime_ns > kAbandonedNs)
      env->remove(path);
  }
}

// Creates the file for `lease`; *won: no other run has this number or a higher one.
Status create_lease(Env* env, const std::string& store, const Lease& lease, bool* won) {
  *won = false;
  const std::string path = directory(store) + "/" + file_of(lease.job, lease.fence);
  std::unique_ptr<File> file;
  if (int e = env->create(path, &file)) {
    return e == EEXIST ? Status::Ok() : io_error("create", path, e);
  }
  file.reset();
  std::vector<uint64_t> fences;
  Status status = list_fences(env, store, lease.job, &fences);
  // A run with a higher number would have removed this file, so it must not appear again.
  if (status.ok() && !fences.empty() && fences.back() > lease.fence) {
    env->remove(path);
    return Status::Ok();
  }
  if (status.ok()) status = write_record(env, store, lease, "held");
  if (!status.ok()) {
    env->remove(path);
    return status;
  }
  *won = true;
  return Status::Ok();
}

}  // namespace

bool Lease::was_held_by(const std::string& other) const {
  return std::find(before.begin(), before.end(), other) != before.end();
}

std::string holder(const Lease& lease) {
  if (lease.run.empty()) return "a run that is just taking it";
  return fmt::format("run {}, process {} on {}", lease.run, lease.pid, lease.host);
}

uint64_t lease_ttl_ms() {
  const char* text = getenv("GPUCKPT_LEASE");
  char* end = nullptr;
  const double seconds = text && *text ? strtod(text, &end) : 0;
  if (!end || (*end && strcmp(end, "s") != 0) || seconds < 0.5 || seconds > 86400)
    return kStandardTtlMs;
  return static_cast<uint64_t>(seconds * 1000);
}

Status read_lease(Env* env, const std::string& store, const std::string& job, Lease* out) {
  for (int attempt = 0;; ++attempt) {
    *out = {};
    out->job = job;
    std::vector<uint64_t> fences;
    if (Status status = list_fences(env, store, job, &fences); !status.ok()) return status;
    if (fences.empty()) return Status::Ok();
    out->fence = fences.back();
    Record record;
    int64_t now = 0;
    Status status = file_system_time(env, store, &now);
    if (status.ok())
      status = read_record(env, directory(store) + "/" + file_of(job, out->fence), &record);
    if (status.code() == kExitAbsent && attempt < 100) continue;  // swept meanwhile
    if (!status.ok()) return status;
    decode(record, now, out);
    return Status::Ok();
  }
}

Status take_lease(Env* env, const std::string& store, const LeaseRequest& request, Lease* out) {
  if (int e = env->mkdir(directory(store)); e && e != EEXIST)
    return io_error("create", directory(store), e);
  for (int attempt = 0; attempt < 100; ++attempt) {
    Lease now;
    if (Status status = read_lease(env, store, request.job, &now); !status.ok()) return status;
    Lease mine;
    mine.job = request.job;
    mine.run = request.run;
    mine.pid = request.pid;
    mine.host = host_name();
    mine.ttl_ms = request.ttl_ms;
    mine.life = Lease::Life::kLive;
    if (now.life != Lease::Life::kNone && now.run == request.run) {
      mine.fence = now.fence;
      mine.has_base = now.has_base;
      mine.base = now.base;
      mine.before = now.before;
      *out = mine;
      return write_record(env, store, mine, "held");
    }
    if (!now.free())
      return Status::Locked(
          fmt::format("job \"{}\" is running already ({})", now.job, holder(now)));
    if (now.was_held_by(request.run)) return lost(now);
    mine.fence = now.fence + 1;
    mine.before = now.before;
    if (!now.run.empty()) mine.before.push_back(now.run);
    if (mine.before.size() > kRemembered)
      mine.before.erase(mine.before.begin(), mine.before.end() - kRemembered);
    bool won = false;
    if (Status status = create_lease(env, store, mine, &won); !status.ok()) return status;
    if (!won) continue;
    sweep(env, store, request.job, mine.fence);
    *out = mine;
    return Status::Ok();
  }
  return Status::Locked(
      fmt::format("job \"{}\" cannot be taken: other runs take and release it in turn; try again",
                  request.job));
}

Status set_base(Env* env, const std::string& store, const std::string& base, Lease* lease) {
  lease->has_base = true;
  lease->base = base;
  return write_record(env, store, *lease, "held");
}

Status renew_lease(Env* env, const std::string& store, const Lease& lease) {
  Lease now;
  if (Status status = read_lease(env, store, lease.job, &now); !status.ok()) return status;
  if (now.fence != lease.fence) return lost(now);
  if (now.life == Lease::Life::kLeaving || now.life == Lease::Life::kEnded) return Status::Ok();
  const std::string path = directory(store) + "/" + file_of(lease.job, lease.fence);
  if (int e = env->touch(path)) return io_error("renew", path, e);
  return Status::Ok();
}

Status leave_lease(Env* env, const std::string& store, const Lease& lease, Lease::Life how) {
  Lease now;
  if (Status status = read_lease(env, store, lease.job, &now); !status.ok()) return status;
  if (now.fence != lease.fence || now.run != lease.run) return lost(now);
  // The process is not replaced: the writer may see other process ids than the run that holds the
  // lease.
  const std::string file = file_of(lease.job, lease.fence);
  Record record;
  if (Status status = read_record(env, directory(store) + "/" + file, &record); !status.ok())
    return status;
  record.json["state"] = how == Lease::Life::kEnded     ? "ended"
                         : how == Lease::Life::kLeaving ? "leaving"
                                                        : "held";
  return replace_file(env, directory(store), file, record.json.dump() + "\n");
}

}  // namespace gpuckpt::store
