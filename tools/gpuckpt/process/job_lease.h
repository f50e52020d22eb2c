// A job taken for a run of it: `run` and `restore` hold the job's lease (store/io/lease.h) as long
// as the program runs, so that the same job cannot run twice on one store.
//
// Which process renews the lease: `restore` stays as the program's parent and does it on a thread.
// `run` becomes the program; it leaves a small process behind (one for each run, not a service)
// which waits for the program's end, because no other process notices the end of a killed program,
// and no timer of ours runs inside of the program.
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
  uint64_t wait_ms = 0;  // for the end of the run that has the job
};

class JobLease {
 public:
  JobLease() = default;
  ~JobLease();  // gives the job back, unless another process keeps it now
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  // kExitLocked: the job runs, and went on running for as long as was to be waited.
  store::Status take(const JobRequest& request);
  // The same without waiting, in a store that is open: of a snapshot that is restored. A job that
  // was taken by `run --resume` just before is ours already. Another run has it: Ok, and not
  // `held`.
  store::Status take_restored(std::shared_ptr<store::Store> store, const std::string& job);
  bool held() const { return lease_.fence != 0; }
  // Of this run; chosen at the first use.
  const std::string& run();

  void keep_in_background();     // for the program that this process becomes
  void keep_on_thread();         // until we are destroyed
  void process_is(int64_t pid);  // the program itself, once it runs

 private:
  store::Status take_now(const std::string& job);
  std::shared_ptr<store::Store> store_;
  store::Lease lease_;
  std::string run_;
  bool keeps_ = true;  // we give it back
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace gpuckpt::cli
