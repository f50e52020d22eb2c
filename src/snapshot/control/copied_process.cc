#include "snapshot/control/copied_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/syscall.h"
#include "snapshot/control/io_thread.h"
#include "snapshot/control/memory_pressure.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/pump.h"
#include "snapshot/park/libc_probe.h"

namespace gpuckpt {
namespace {

bool child_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return !type || io_thread.send(io_thread.child_socket, type, slot, text);
}

// Sends everything of the host's side.
bool send_host(HostSource* host, PumpFrom from) {
  Producer out(io_thread.ring.data(), child_post, nullptr, host->ring_slots);
  bool ok = (from != PumpFrom::kClone ||
             clone_is_whole(*host->capture, host->text, sizeof(host->text))) &&
            pump_memory(*host->capture, &out, from, host->text, sizeof(host->text)) &&
            host->capture->embedded.send(&out, host->text, sizeof(host->text)) && out.flush();
  if (ok) {
    // Asked only where it matters: the answer can take a while.
    process::LibcLocks locks{host->device && from == PumpFrom::kClone && libc_is_free(), 0};
    host->records->put(process::kRecLocks, locks);
    host->records->put(process::kRecEnd, uint64_t{0});
    ok = out.add_blob("process", host->records->data(), host->records->size());
  }
  if (ok) ok = io_thread.send(io_thread.child_socket, wire::kMsgEnd, 0, nullptr);
  if (!ok)
    io_thread.send(io_thread.child_socket, wire::kMsgAbort, 0,
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

long clone_and_send(HostSource* host) {
  long pid = sys::call(SYS_clone, 0 /* no exit signal */, 0, 0, 0, 0);
  if (pid == 0) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-copy"));
    offer_to_oom_killer();
    send_host(host, PumpFrom::kClone);
    sys::exit_group(0);
  }
  if (sys::failed(pid)) return pid;
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
