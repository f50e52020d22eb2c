#include "snapshot/control/copied_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/address.h"
#include "base/syscall.h"
#include "snapshot/control/memory_pressure.h"
#include "snapshot/control/state.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/memory/host_pump.h"
#include "snapshot/park/libc_probe.h"
#include "snapshot/park/park.h"

namespace gpuckpt {
namespace {

// The clone that only answers whether locks of libc are held is made without these: mappings larger
// than any arena of glibc's, but for the break and for what is around the thread pointers of
// threads. (The kernel joins a stack to the memory above it.) Should libc have something there all
// the same, the clone ends by a signal.
constexpr uint64_t kLarge = 64ull << 20, kAround = 64ull << 10;
constexpr uint64_t kPatienceUs = 2000000;
bool small_clone_works = true;  // learnt once for the process

void advise(uint64_t start, uint64_t end, int advice) {
  sys::call(SYS_madvise, static_cast<long>(start), static_cast<long>(end - start), advice);
}

void advise_around_threads(uint64_t start, uint64_t end, int advice) {
  for (size_t i = 0; i < parking.count(); ++i) {
    const uint64_t fs = page_down(parking.thread(i).fs);
    if (fs < start || fs >= end) continue;
    if (fs > start + kAround) advise_around_threads(start, fs - kAround, advice);
    if (end > fs + kAround) advise_around_threads(fs + kAround, end, advice);
    return;
  }
  advise(start, end, advice);
}

void keep_from_clone(const Capture& c, int advice) {
  const uint64_t heap_end = static_cast<uint64_t>(sys::call(SYS_brk, 0));
  for (size_t i = 0; i < c.pages.range_count; ++i) {
    const PumpRange& r = c.pages.ranges[i];
    const bool heap = r.start < heap_end && heap_end <= page_up(r.end);
    const bool plain =
        !(c.pages.flags(r.start) & (process::kVmaDontFork | process::kVmaWipeOnFork));
    if (r.tracked && r.end - r.start > kLarge && !heap && plain)
      advise_around_threads(r.start, r.end, advice);
  }
  for (size_t i = 0; i < c.keep_from_clone_count; ++i)
    advise(c.keep_from_clone[i].start, c.keep_from_clone[i].end, advice);
}

// ON THE I/O THREAD, no thread parked. Waits for the clone's answer. True: all locks of libc were
// free.
bool await_answer_of_libc() {
  const int pid = io_thread.asked_pid;
  if (pid <= 0) return false;
  io_thread.asked_pid = 0;
  int status = 0;
  const uint64_t deadline = sys::now_us() + kPatienceUs;
  long ended;
  while ((ended = sys::call(SYS_wait4, pid, sys::ptr(&status), WNOHANG | __WALL, 0)) == 0) {
    if (sys::now_us() > deadline) sys::call(SYS_kill, pid, SIGKILL);
    sys::sleep_us(200);
  }
  if (ended != pid) return false;
  // The clone needed one of the mappings that were left out.
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) small_clone_works = false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Out of the program's process group: what the program or a shell sends to that is not for a
// process of ours, and a search for the group's processes finds only the program's.
void leave_group(long pid) { sys::call(SYS_setpgid, pid, pid); }

bool hung_up(int socket) {
  pollfd p{socket, 0, 0};
  return sys::call(SYS_poll, sys::ptr(&p), 1, 0) == 1 && p.revents;
}

// Sends everything of the host's side.
bool send_host(HostSource* host, PumpFrom from) {
  Producer out(io_thread.ring.data(), child_post, nullptr, host->ring_slots);
  const bool whole =
      from != PumpFrom::kClone || clone_is_whole(*host->capture, host->text, sizeof(host->text));
  bool ok = whole && pump_memory(*host->capture, &out, from, host->text, sizeof(host->text)) &&
            host->capture->embedded.send(&out, host->text, sizeof(host->text)) && out.flush();
  if (ok) {
    // The question is asked only where the answer matters, because it can take a while.
    process::LibcLocks locks{};
    if (host->device)
      locks.free = from == PumpFrom::kClone  ? libc_is_free()
                   : from == PumpFrom::kCopy ? await_answer_of_libc()
                                             : false;
    host->records->put(process::kRecLocks, locks);
    host->records->put(process::kRecEnd, uint64_t{0});
    ok = out.add_blob("process", host->records->data(), host->records->size());
  }
  if (ok) ok = io_thread.send(io_thread.child_socket, wire::kMsgEnd, 0, nullptr);
  if (!ok)
    io_thread.send(io_thread.child_socket, wire::kMsgAbort, whole ? 0 : wire::kFailedForNow,
                   host->text[0] ? host->text : "the copied process could not send its memory");
  return ok;
}

// When memory runs out, the copy has to end and not the program.
void offer_to_oom_killer() {
  const int fd = sys::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  sys::write(fd, "1000", 4);
  sys::close(fd);
}

}  // namespace

bool child_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return type ? io_thread.send(io_thread.child_socket, type, slot, text)
              : !hung_up(io_thread.child_socket);
}

bool ask_libc_in_small_clone(HostSource* host) {
  if (!small_clone_works) return false;
  keep_from_clone(*host->capture, 10 /* MADV_DONTFORK */);
  const long pid = sys::call(SYS_clone, 0 /* no exit signal */, 0, 0, 0, 0);
  if (pid == 0) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-ask"));
    sys::call(SYS_prctl, PR_SET_DUMPABLE, 0);
    offer_to_oom_killer();
    sys::exit_group(libc_is_free() ? 0 : 1);
  }
  keep_from_clone(*host->capture, 11 /* MADV_DOFORK */);
  if (sys::failed(pid)) return false;
  leave_group(pid);
  io_thread.asked_pid = static_cast<int>(pid);
  return true;
}

void end_question_to_libc() {
  if (io_thread.asked_pid <= 0) return;
  sys::call(SYS_kill, io_thread.asked_pid, SIGKILL);
  sys::call(SYS_wait4, io_thread.asked_pid, 0, __WALL, 0);
  io_thread.asked_pid = 0;
}

long clone_and_send(HostSource* host) {
  long pid = sys::call(SYS_clone, 0 /* no exit signal */, 0, 0, 0, 0);
  if (pid == 0) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-copy"));
    offer_to_oom_killer();
    send_host(host, PumpFrom::kClone);
    sys::exit_group(0);
  }
  if (sys::failed(pid)) return pid;
  leave_group(pid);
  io_thread.child_pid = static_cast<int>(pid);
  // The writer must see the end of the copy, whatever its cause.
  sys::close(io_thread.child_socket);
  io_thread.child_socket = -1;
  return pid;
}

bool send_while_stopped(HostSource* host) { return send_host(host, PumpFrom::kStopped); }
bool send_copied_pages(HostSource* host) { return send_host(host, PumpFrom::kCopy); }

bool copied_process_has_ended() {
  int status = 0;
  if (io_thread.child_pid > 0 && sys::call(SYS_wait4, io_thread.child_pid, sys::ptr(&status),
                                           WNOHANG | __WALL, 0) == io_thread.child_pid) {
    io_thread.child_pid = 0;
    io_thread.child_killed = (status & 0x7f) == SIGKILL;
  }
  return io_thread.child_pid <= 0;
}

bool copied_process_is_too_large() {
  return !copied_process_has_ended() &&
         memory_pressure_exceeds(io_thread.child_pid, library.config.copy_limit);
}

}  // namespace gpuckpt
