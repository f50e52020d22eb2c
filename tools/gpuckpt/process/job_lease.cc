#include "process/job_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include "store/io/process_identity.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

using store::Lease;
using Clock = std::chrono::steady_clock;

constexpr const char* kRunVariable = "GPUCKPT_RUN_ID";

uint64_t elapsed_ms(Clock::time_point since) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count());
}

// The run of the job inside of which this program is started: it belongs to the same run
// (src/snapshot/job/job_name.h).
std::string inherited_run() {
  const char* family = getenv("GPUCKPT_JOB_NAME");
  const char* dash = family ? strrchr(family, '-') : nullptr;
  return dash ? dash + 1 : "";
}

std::string random_run() {
  uint64_t number = 0;
  while (!number)
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
      number = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  return fmt::format("{:x}", number >> 16);
}

std::string show(const std::string& job) {
  return job.empty() ? "the job without a name" : fmt::format("job \"{}\"", job);
}

// Says which run has the job, and how long this one waits for it. The lease of a process that is
// here does not run out, and one that is stopped does not end by itself.
void say_what_for(const Lease& lease, uint64_t wait_ms) {
  if (lease.host == store::host_name() && store::is_stopped(lease.pid)) {
    complain(fmt::format(
        "{0} is running ({1}), and process {2} is stopped: waiting up to {3} for its end "
        "(--resume-wait); continue it (kill -CONT {2}) or end it (kill -KILL {2})",
        show(lease.job), holder(lease), lease.pid, show_duration_us(wait_ms * 1000)));
    return;
  }
  complain(fmt::format(
      "{} is running ({}): waiting up to {} for its last snapshot and its end, or until its lease, "
      "last renewed {} ago, runs out after {} (--resume-wait)",
      show(lease.job), holder(lease), show_duration_us(wait_ms * 1000),
      show_duration_us(static_cast<uint64_t>(lease.age_ms) * 1000),
      show_duration_us(lease.ttl_ms * 1000)));
}

void say_how_it_ended(const Lease& lease) {
  switch (lease.life) {
    case Lease::Life::kEnded:
      complain(fmt::format("the run before of {} has ended", show(lease.job)));
      break;
    case Lease::Life::kGone:
      complain(fmt::format("the run before of {} ({}) has ended without giving it back",
                           show(lease.job), holder(lease)));
      break;
    case Lease::Life::kExpired:
      complain(
          fmt::format("taking {} over: the lease of {} was not renewed for {} (its machine is "
                      "lost, or cut off; "
                      "should it still run, its snapshots do not count any more)",
                      show(lease.job), holder(lease),
                      show_duration_us(static_cast<uint64_t>(lease.age_ms) * 1000)));
      break;
    default:
      break;
  }
}

// --- the process that renews the lease for `run`

void close_all_but(int fd) {
  if (fd > 0) close_range(0, static_cast<unsigned>(fd) - 1, 0);
  close_range(static_cast<unsigned>(fd) + 1, ~0u, 0);
}

// Renews until the program behind `program` (a pidfd) has ended, or another run has the job.
[[noreturn]] void keep(store::Store& store, const Lease& lease, int program) {
  setsid();
  for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP})
    signal(number, SIG_IGN);
  prctl(PR_SET_NAME, "gpuckpt-lease");
  if (chdir("/") != 0) _exit(kExitError);
  close_all_but(program);
  // Without this the process would count as a process of the job that the program is started in
  // (src/snapshot/job/job_name.h).
  for (char** e = environ; *e; ++e)
    if (strncmp(*e, "GPUCKPT_JOB_NAME=", 15) == 0) memset(*e, 'x', strlen(*e));
  const int pause = static_cast<int>(std::max<uint64_t>(lease.ttl_ms / 4, 100));
  for (;;) {
    pollfd p{program, POLLIN, 0};
    const int ready = poll(&p, 1, pause);
    if (ready > 0) break;
    if (ready == 0 && store.renew_job(lease).code() == kExitLocked) _exit(kExitOk);
  }
  (void)store.leave_job(lease, Lease::Life::kEnded);
  _exit(kExitOk);
}

// Whether orphans become children of this process: of the first process of a container, or of a
// subreaper. The program's waits would then find the renewing process. There it stays our child,
// without a signal at its end, and only a wait with __WALL finds it.
bool orphans_come_here() {
  int subreaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  return getpid() == 1 || subreaper;
}

}  // namespace

JobLease::~JobLease() {
  {
    std::lock_guard guard(mutex_);
    end_ = true;
    ended_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (held() && keeps_) (void)store_->leave_job(lease_, Lease::Life::kEnded);
}

const std::string& JobLease::run() {
  if (run_.empty()) run_ = inherited_run();
  if (run_.empty()) run_ = random_run();
  return run_;
}

Status JobLease::take_now(const std::string& job) {
  Lease taken;
  Status status = store_->take_job({job, run(), getpid(), store::lease_ttl_ms()}, &taken);
  if (status.ok()) lease_ = taken;
  return status;
}

Status JobLease::take(const JobRequest& request) {
  store::Store::Options options;
  options.create = true;
  options.any_owner = any_owner();
  options.mirror = request.mirror;
  std::unique_ptr<store::Store> opened;
  Status status = store::Store::open(request.store, options, &opened);
  if (!status.ok()) return status;
  store_ = std::move(opened);
  const Clock::time_point since = Clock::now();
  bool said = false;
  std::string before;  // the run that had the job at first
  for (;;) {
    Lease now;
    if (status = store_->job_lease(request.job, &now); !status.ok()) return status;
    bool writing = false;
    // The program may have ended while its last snapshot is still being written.
    if (now.free() && !now.run.empty() && now.run != run())
      if (status = store_->is_writing(now.run, &writing); !status.ok()) return status;
    const bool over = elapsed_ms(since) >= request.wait_ms;
    if (now.free() && (!writing || over)) {
      status = take_now(request.job);
      if (status.ok() && now.life != Lease::Life::kNone &&
          (said || now.life != Lease::Life::kEnded))
        say_how_it_ended(now);
      if (status.code() != kExitLocked) break;
    } else if (now.run == run()) {  // this process is a part of that run
      lease_ = now;
      keeps_ = false;
      break;
    } else if (over) {
      return Status::Locked(fmt::format(
          "{} is running already ({}): stop it first, choose another --job, or let "
          "--resume-wait be longer{}",
          show(request.job), holder(now),
          request.wait_ms ? fmt::format(" than {}", show_duration_us(request.wait_ms * 1000))
                          : ""));
    }
    if (over && status.code() == kExitLocked) break;
    if (!said && request.wait_ms) {
      if (writing)
        complain(fmt::format("waiting for the last snapshot of {} ({}), which is being written",
                             show(request.job), holder(now)));
      else
        say_what_for(now, request.wait_ms);
      said = true;
    }
    usleep(100'000);
  }
  if (status.ok()) setenv(kRunVariable, run().c_str(), 1);
  return status;
}

Status JobLease::take_restored(std::shared_ptr<store::Store> store, const std::string& job) {
  store_ = std::move(store);
  Lease now;
  if (Status status = store_->job_lease(job, &now); !status.ok()) return status;
  if (job.empty() && now.life == Lease::Life::kNone) return Status::Ok();
  const char* chosen = getenv(kRunVariable);
  if (chosen && now.run == chosen && (now.pid == getpid() || now.pid == getppid())) run_ = chosen;
  if (run_.empty()) run_ = random_run();
  setenv(kRunVariable, run_.c_str(),
         1);  // inherited when an older snapshot is restored after this one
  if (now.free() || now.run == run_) {
    Status status = take_now(job);
    if (status.code() != kExitLocked) return status;
    if (Status again = store_->job_lease(job, &now); !again.ok()) return again;
  }
  complain(fmt::format(
      "warning: {} is running ({}): this restore is another run of it, and its snapshots are a "
      "branch, which `latest` and --resume auto do not take",
      show(job), holder(now)));
  return Status::Ok();
}

void JobLease::keep_in_background() {
  if (!held() || !keeps_) return;
  keeps_ = false;
  const int program = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (program < 0) {
    complain(
        fmt::format("warning: the lease of {} is not renewed (pidfd_open: {}): other machines "
                    "may take it for lost",
                    show(lease_.job), strerror(errno)));
    return;
  }
  const bool ours = orphans_come_here();
  const long child = ours ? syscall(SYS_clone, 0, 0, 0, 0, 0) : fork();
  if (child == 0) {
    if (!ours && fork() != 0) _exit(0);
    keep(*store_, lease_, program);
  }
  if (child < 0)
    complain(
        fmt::format("warning: the lease of {} is not renewed (fork: {}): other machines may "
                    "take it for lost",
                    show(lease_.job), strerror(errno)));
  else if (!ours)
    while (waitpid(static_cast<pid_t>(child), nullptr, 0) < 0 && errno == EINTR) {
    }
  close(program);
}

void JobLease::keep_on_thread() {
  if (!held()) return;
  thread_ = std::thread([this, lease = lease_] {
    const auto pause = std::chrono::milliseconds(std::max<uint64_t>(lease.ttl_ms / 4, 100));
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, pause, [this] { return end_; }))
      if (store_->renew_job(lease).code() == kExitLocked) return;
  });
}

void JobLease::process_is(int64_t pid) {
  if (!held() || pid <= 0) return;
  (void)store_->take_job({lease_.job, run_, pid, lease_.ttl_ms}, &lease_);
}

}  // namespace gpuckpt::cli
