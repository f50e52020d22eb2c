// A job taken for a run of it: `run` and `restore` hold the job's lease (store/io/lease.h) as long
// as the program runs, so that the same job cannot run twice on one store.
//
// Which process renews the lease: `restore` stays as the program's parent and does it on a thread.
// `run` becomes the program; it leaves a small process behind (one for each run, not a service)
// which waits for the program's end, because no other process notices the end of a killed program,
// and gpuckpt runs no timer inside the program.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/store.h"

namespace gpuckpt::cli {

struct JobRequest {
  std::string store, mirror, job;
  uint64_t wait_ms = 0;  // how long to wait for the end of the run that has the job
};

class JobLease {
 public:
  JobLease() = default;
  ~JobLease();  // gives the job back, unless another process holds it now
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  // kExitLocked: the job is running, and was still running after the wait.
  store::Status take(const JobRequest& request);
  // The same without waiting, in a store that is open already, for a snapshot that is restored. A
  // job that `run --resume` has just taken is ours already. When another run has it the result is
  // Ok and not `held`.
  store::Status take_restored(std::shared_ptr<store::Store> store, const std::string& job);
  bool held() const { return lease_.fence != 0; }
  // The id of this run, chosen at the first use.
  const std::string& run();

  // Renews in a process of its own, for the program that this process becomes.
  void keep_in_background();
  void keep_on_thread();         // renews on a thread, until this object is destroyed
  void process_is(int64_t pid);  // records the process id of the program once it runs

 private:
  store::Status take_now(const std::string& job);
  std::shared_ptr<store::Store> store_;
  store::Lease lease_;
  std::string run_;
  bool keeps_ = true;  // this object gives the job back
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace gpuckpt::cli
