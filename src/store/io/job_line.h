// The line of a job: its snapshots that follow one from the other, of which the newest is where the
// job continues. What a run publishes that has lost the job to another run (lease.h) is a branch:
// it can be restored by its id, but `latest` and `--resume auto` do not take it.
//
// A snapshot says in its description which `run` wrote it, the `fence` of the run's lease, the
// `base` of that lease, its `parent`, and `branch` when the run knew that it had lost the job. It
// may also become a branch without knowing it, in the moment of its publication. Therefore: when a
// run took the job with a higher number and did not see a snapshot (it is younger than the run's
// base), that snapshot is a branch.
//
// Owner: the caller. Threads: one for each JobLine. Errors: a Status.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "store/store_internal.h"

namespace gpuckpt::store {

class JobLine {
 public:
  JobLine(Env* env, const Paths& paths) : env_(env), paths_(paths) {}
  // Whether the snapshot is a branch. Must be asked from the newest to the oldest. `meta` is its
  // description; for one that cannot be read the answer is no.
  bool is_branch(const std::string& id, const std::string& meta);

 private:
  struct Cut {
    uint64_t fence;
    std::string base;
  };
  std::vector<Cut>& cuts_of(const std::string& job);
  Env* env_;
  Paths paths_;
  std::map<std::string, std::vector<Cut>> cuts_;  // by job
};

// The newest snapshot of the job's line; empty: there is none.
Status newest_of_line(Env* env, const Paths& paths, const std::string& job, std::string* id);
// The newest snapshot of the store that is no branch; empty: there is none.
Status newest_of_all(Env* env, const Paths& paths, std::string* id);

// Takes the job for a run (take_lease), and records where its line ends.
Status take_job(Env* env, const Paths& paths, const LeaseRequest& request, Lease* out);

// Adds to the description `meta`, which has the snapshot's `parent`, what it says about its
// position in the line. A run without a lease takes the job here, when no run has it and the
// snapshot follows the newest of the line. *warning: the snapshot is a branch, and why.
Status place_in_line(Env* env, const Paths& paths, const LeaseRequest& request,
                     nlohmann::json* meta, std::string* warning);

}  // namespace gpuckpt::store
