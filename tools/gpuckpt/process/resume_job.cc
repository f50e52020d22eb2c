#include "process/resume_job.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/json_text.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {

namespace {

// Becomes the restore of the job's newest snapshot in the store at `path`; returns when there is
// none.
Status resume_from(const std::string& path, const ResumeOptions& options, bool* found) {
  std::unique_ptr<store::Store> store;
  Status status = store::Store::open(path, {.any_owner = any_owner()}, &store);
  if (status.code() == kExitAbsent) return Status::Ok();
  if (!status.ok()) return status;
  std::vector<store::SnapshotInfo> list;
  if (status = store->list(&list); !status.ok()) return status;
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    auto meta = store::parse_json(it->meta);
    if (!it->status.ok()) complain(fmt::format("warning: {}", it->status.text()));
    if (!meta.is_object() || !meta.contains("job") || meta["job"] != options.job) continue;
    if (it->branch) {
      complain(
          fmt::format("snapshot {} is passed over: its run had lost the job to another run by then "
                      "(`gpuckpt list --tree`)",
                      it->id));
      continue;
    }
    *found = true;
    complain(fmt::format("resuming from snapshot {}", it->id));
    std::string reference = path + "@" + it->id;
    std::vector<const char*> argv = {"gpuckpt", "restore", reference.c_str(), "--older"};
    if (!options.status_file.empty())
      argv.insert(argv.end(), {"--status-file", options.status_file.c_str()});
    if (!options.mirror.empty()) argv.insert(argv.end(), {"--mirror", options.mirror.c_str()});
    argv.push_back(nullptr);
    execv("/proc/self/exe", const_cast<char**>(argv.data()));
    return Status::Error(fmt::format("cannot run gpuckpt restore: {}", strerror(errno)));
  }
  return Status::Ok();
}

}  // namespace

Status resume_job(const ResumeOptions& options, bool* found) {
  *found = false;
  Status status = resume_from(options.store, options, found);
  if (!status.ok() || options.mirror.empty()) return status;
  complain(fmt::format("{} has no snapshot of job {}; looking into the mirror {}", options.store,
                       options.job, options.mirror));
  return resume_from(options.mirror, options, found);
}

}  // namespace gpuckpt::cli
