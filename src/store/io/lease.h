// Which run has a job: each job of a store has one lease, so that two runs of it never both publish
// into its line (job_line.h).
//
// A lease is a file jobs/JOB.FENCE.lease, created with O_EXCL: of several processes that want the
// same fencing number one wins. The highest number is the lease that counts. Its holder is a run:
// the processes of one start of the job, by a number that fork and exec inherit. A restore is
// another run.
//
// Where the holder's process can be seen (this boot, this pid namespace), the lease lives as long
// as that process. Elsewhere the time of the file decides: the holder touches it three times within
// `ttl`, and the lease expires when that did not happen. Times are the file system's own, so that
// clocks of machines need not agree.
//
// Owner: the run. Threads: any, the files decide. Errors: a Status; kExitLocked when another run
// has the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/io/env.h"

namespace gpuckpt::store {

struct Lease {
  enum class Life {
    kNone,     // no run has ever taken one
    kLive,     // the run is alive, as far as can be seen
    kLeaving,  // the run has taken its last snapshot and is about to end
    kEnded,    // the run has given it back
    kGone,     // the run's process does not exist any more
    kExpired,  // not renewed for longer than `ttl`
  };
  Life life = Life::kNone;
  uint64_t fence = 0;
  std::string job, run, host;
  int64_t pid = 0;
  uint64_t ttl_ms = 0;
  int64_t age_ms = 0;  // since it was last renewed
  // The newest snapshot of the job's line when the run took the lease ("": there was none). No run
  // with a lower number can add a newer one to the line. `has_base` is false while the run has not
  // looked yet.
  bool has_base = false;
  std::string base;
  std::vector<std::string> before;  // the runs that had the job earlier, the last ones

  bool free() const { return life != Life::kLive && life != Life::kLeaving; }
  bool was_held_by(const std::string& other) const;
};

// The holder as messages name it: "process 12 on host a".
std::string holder(const Lease& lease);

struct LeaseRequest {
  std::string job, run;
  int64_t pid = 0;           // a process that lives as long as the run does
  uint64_t ttl_ms = 60'000;  // GPUCKPT_LEASE
};

// The value of GPUCKPT_LEASE, or the default.
uint64_t lease_ttl_ms();

Status read_lease(Env* env, const std::string& store, const std::string& job, Lease* out);
// kExitLocked: another run has the job, or took it at this moment. The run that has it gets it
// again, for the process of this request; a run that has lost it does not. The new lease has no
// base yet: find the end of the line and record it with set_base.
Status take_lease(Env* env, const std::string& store, const LeaseRequest& request, Lease* out);
Status set_base(Env* env, const std::string& store, const std::string& base, Lease* lease);
// kExitLocked: another run has it now.
Status renew_lease(Env* env, const std::string& store, const Lease& lease);
// Records that the run took its last snapshot (kLeaving), or that it is over (kEnded).
Status leave_lease(Env* env, const std::string& store, const Lease& lease, Lease::Life how);

}  // namespace gpuckpt::store
