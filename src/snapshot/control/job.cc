#include "snapshot/control/job.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/proc.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api/api.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/io_thread.h"
#include "snapshot/control/memory_pressure.h"
#include "snapshot/control/obstacles.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/descriptors/pump.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/lazy.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/libc_probe.h"
#include "snapshot/park/park.h"
#include "snapshot/park/stopped_children.h"
#include "snapshot/park/stopped_process.h"
#include "snapshot/process/told.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kParkPatienceUs = 200000;  // for one try
constexpr uint64_t kParkRetriesUs = 600000;   // for all, until the gate is opened again
constexpr uint64_t kFilesPatienceMs = 20000;
constexpr uint64_t kRefusalPatienceUs = 2000000;  // with what may be over in a moment

bool fail(Job* j, int code, const char* pattern, ...) __attribute__((format(printf, 3, 4)));
bool fail(Job* j, int code, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vformat(j->text, sizeof(j->text), pattern, args);
  va_end(args);
  j->code = code;
  return false;
}

bool parent_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return io_thread.post(type, slot, text);
}

struct HelloCall {
  const Job* job;
  char* to;
  size_t room;
};
// On the I/O thread: it opens files, and the application's lowest free descriptors are the
// application's.
long make_hello(IoThread*, void* argument) {
  const auto [j, to, room] = *static_cast<HelloCall*>(argument);
  char command[1024], exe[512], host[128], kernel[128], cwd[512];
  long n = read_file("/proc/thread-self/cmdline", command, sizeof(command));
  for (long i = 0; i + 1 < n; ++i)
    if (!command[i]) command[i] = ' ';
  auto link = [](const char* name, char* to_path, size_t path_room) {
    long l = sys::call(SYS_readlinkat, -100, sys::ptr(name), sys::ptr(to_path),
                       static_cast<long>(path_room - 1));
    to_path[l > 0 ? l : 0] = 0;
  };
  link("/proc/thread-self/exe", exe, sizeof(exe));
  link("/proc/thread-self/cwd", cwd, sizeof(cwd));
  auto line = [](const char* name, char* text, size_t text_room) {
    long l = read_file(name, text, text_room);
    if (l > 0 && text[l - 1] == '\n') text[l - 1] = 0;
    if (l <= 0) text[0] = 0;
  };
  line("/proc/sys/kernel/hostname", host, sizeof(host));
  line("/proc/sys/kernel/osrelease", kernel, sizeof(kernel));
  Text t(to, room);
  t.add("{\"pid\":%d,\"host_pid\":%d,\"uid\":%ld,\"generation\":%u,\"reason\":\"%s\",\"command\":",
        library.pid, library.host_pid, sys::call(SYS_geteuid), library.generation, j->reason);
  t.json(n > 0 ? command : "");
  t.add(",\"exe\":"), t.json(exe);
  t.add(",\"cwd\":"), t.json(cwd);
  t.add(",\"host\":"), t.json(host);
  t.add(",\"kernel\":"), t.json(kernel);
  t.add(",\"time\":%lu", sys::now_us(0) / 1000000);
  if (j->tag[0]) t.add(",\"tag\":"), t.json(j->tag);
  t.add(",\"run\":"), t.json(run_name());
  // The program is about to end: nobody needs to wait for another snapshot of it.
  if (j->stop || equal(j->reason, "term")) t.add(",\"last\":true");
  // It does not run again: its files stay as they are.
  if (j->stop) t.add(",\"stop\":true");
  if (library.last_snapshot[0] && library.last_number == job_barrier.number())
    t.add(",\"parent\":"), t.json(library.last_snapshot);
  t.add("}");
  return 0;
}

void make_statistics(const Job* j, uint64_t host_bytes, char* to, size_t room) {
  Text t(to, room);
  t.add(
      "{\"stall_us\":%lu,\"park_us\":%lu,\"capture_us\":%lu,\"clone_us\":%lu,\"gate_us\":%lu,"
      "\"threads\":%lu,"
      "\"mappings\":%lu,\"copied_while_running\":%s,\"device\":%s",
      j->stall_us, j->park_us, j->capture_us, j->clone_us, j->gate_us, j->threads, j->mappings,
      j->cloned ? "true" : "false", j->device ? "true" : "false");
  if (host_bytes) t.add(",\"host_bytes\":%lu", host_bytes);
  t.add(
      ",\"track\":\"%s\",\"way\":\"%s\",\"scan_us\":%lu,\"copy_us\":%lu,\"arm_us\":%lu,"
      "\"state_us\":%lu,\"maps_us\":%lu,\"fds_us\":%lu,\"wake_us\":%lu,\"early_us\":%lu,"
      "\"early_bytes\":%lu,\"written_bytes\":%lu,\"unchanged_bytes\":%lu",
      tracker.mode_name(), j->way, j->scan_us, j->copy_us, j->arm_us, j->state_us, j->maps_us,
      j->fds_us, j->wake_us, j->early_us, j->early_bytes, j->written_bytes, j->unchanged_bytes);
  if (j->device)
    t.add(
        ",\"device_bytes\":%lu,\"moved_bytes\":%lu,\"staged_bytes\":%lu,\"allocations\":%lu,"
        "\"drain_"
        "us\":%lu,\"stage_us\":%lu,\"hash_us\":%lu,\"ahead_bytes\":%lu,\"ahead_rounds\":%lu,"
        "\"ahead_stop_us\":%lu",
        j->device_report.device_bytes, j->device_report.moved_bytes, j->device_report.staged_bytes,
        j->device_report.allocations, j->device_report.drain_us, j->device_report.stage_us,
        j->device_report.hash_us, j->device_report.ahead_bytes, j->device_report.ahead_rounds,
        j->device_report.ahead_stop_us);
  t.add("}");
}

void describe_pages(Job* j, const HostPages& h) {
  j->scan_us = h.scan_us, j->copy_us = h.copy_us, j->arm_us = tracker.armed_us;
  j->early_us = h.early_us, j->early_bytes = h.early_bytes;
  h.count(&j->written_bytes, &j->unchanged_bytes);
  log_line(
      LogLevel::kDebug,
      "pages: %s, way %s (copy %lu us for %lu KiB, clone %lu us expected), %lu KiB early in %lu "
      "us, scan %lu us, copy %lu us, arm %lu us, written %lu KiB, unchanged %lu KiB",
      tracker.mode_name(), j->way, h.plan.copy_us, h.plan.bytes >> 10, h.plan.clone_us,
      h.early_bytes >> 10, h.early_us, h.scan_us, h.copy_us, tracker.armed_us,
      j->written_bytes >> 10, j->unchanged_bytes >> 10);
}

// --- the device, on a pthread
// -------------------------------------------------------------------------------------------

struct DeviceWork {
  Job* job;
  Producer* producer;
  uint64_t deadline_ms;
  bool active = false;  // there is a driver with state
  bool drained = false;
  bool frozen = false;  // the gate is closed
  bool ok = false;
  bool staged = false;  // `ahead` or `stage` was called: to be settled
};

bool has_device() { return device_plugin && device_plugin->active && device_plugin->active(); }

void freeze(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  DeviceReport& report = w->job->device_report;
  w->ok = w->frozen = device_plugin->freeze(library.config.gate_ms, w->deadline_ms, &report);
  w->active = report.active;
}

void ahead(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  w->staged = true;
  w->ok = device_plugin->ahead(w->producer, library.config.gate_ms, w->deadline_ms,
                               &w->job->device_report) &&
          w->producer->flush();
}

void stage(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  w->staged = true;
  tracker.ask_device();
  w->ok = device_plugin->stage(w->producer, &w->job->device_report);
  // A program that is to stop will not run again to make way for the drain: everything goes now.
  // Nor will one that stops again (stopped_process.h).
  if (w->ok && (w->job->stop || threads_are_held())) {
    w->ok = device_plugin->drain(w->producer, &w->job->device_report);
    w->drained = w->ok;
  }
  w->ok = w->ok && w->producer->flush();
}

void freeze_and_stage(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  freeze(w);
  if (w->frozen && w->active) stage(w);
}

void drain(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  w->ok = device_plugin->drain(w->producer, &w->job->device_report) && w->producer->flush();
}

bool device_failed(Job* j, const char* what) {
  const DeviceReport& r = j->device_report;
  return fail(j, r.code ? r.code : kExitError, "%s", r.text[0] ? r.text : what);
}

// --- the copied child
// ----------------------------------------------------------------------------------------------------

struct Copy {
  Capture* capture;
  Records* records;
  bool device;
  uint32_t ring_slots;
  bool failed = false;
  char text[256] = "";
};

bool child_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return !type || io_thread.send(io_thread.child_socket, type, slot, text);
}

// Sends everything of the host's side.
bool send_host(Copy* copy, PumpFrom from) {
  Producer out(io_thread.ring.data(), child_post, nullptr, copy->ring_slots);
  bool ok = (from != PumpFrom::kClone ||
             clone_is_whole(*copy->capture, copy->text, sizeof(copy->text))) &&
            pump_memory(*copy->capture, &out, from, copy->text, sizeof(copy->text)) &&
            copy->capture->embedded.send(&out, copy->text, sizeof(copy->text)) && out.flush();
  if (ok) {
    // Asked only for whom it matters: the answer can take a while.
    process::LibcLocks locks{copy->device && from == PumpFrom::kClone && libc_is_free(), 0};
    copy->records->put(process::kRecLocks, locks);
    copy->records->put(process::kRecEnd, uint64_t{0});
    ok = out.add_blob("process", copy->records->data(), copy->records->size());
  }
  if (ok) ok = io_thread.send(io_thread.child_socket, wire::kMsgEnd, 0, nullptr);
  if (!ok)
    io_thread.send(io_thread.child_socket, wire::kMsgAbort, 0,
                   copy->text[0] ? copy->text : "the copied process could not send its memory");
  return ok;
}

// When memory runs out, the copy has to end and not the program.
void offer_to_oom_killer() {
  const int fd = sys::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  sys::write(fd, "1000", 4);
  sys::close(fd);
}

// On the I/O thread: the copy holds the I/O thread's descriptors and nothing else.
long clone_and_send(IoThread* c, void* argument) {
  Copy* copy = static_cast<Copy*>(argument);
  long pid = sys::call(SYS_clone, 0 /* no exit signal */, 0, 0, 0, 0);
  if (pid == 0) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-copy"));
    offer_to_oom_killer();
    send_host(copy, PumpFrom::kClone);
    sys::exit_group(0);
  }
  if (sys::failed(pid)) return pid;
  c->child_pid = static_cast<int>(pid);
  // The writer must see the end of the copy, whatever its cause.
  sys::close(c->child_socket);
  c->child_socket = -1;
  return pid;
}

long send_while_stopped(IoThread*, void* argument) {
  return send_host(static_cast<Copy*>(argument), PumpFrom::kStopped);
}
long send_copy(IoThread*, void* argument) {
  return send_host(static_cast<Copy*>(argument), PumpFrom::kCopy);
}

// --- one attempt
// -----------------------------------------------------------------------------------------------------------

struct ParkCall {
  char* text;
  size_t room;
};
long park_on_io_thread(IoThread*, void* argument) {
  ParkCall* p = static_cast<ParkCall*>(argument);
  int own[2] = {static_cast<int>(library.coordinator_tid.load()), io_thread.tid()};
  return parking.park(own, 2, kParkPatienceUs, p->text, p->room);
}

struct CaptureCall {
  Capture* capture;
  Records* records;
  bool device;
};
long capture_on_io_thread(IoThread*, void* argument) {
  CaptureCall* c = static_cast<CaptureCall*>(argument);
  c->capture->pages.look_again();
  if (!capture_process(c->capture, c->records, c->device)) return false;
  c->capture->pages.find_written();
  put_guards(c->capture, c->records);
  return true;
}
long copy_on_io_thread(IoThread*, void* argument) {
  return static_cast<Capture*>(argument)->pages.copy_pages();
}

// Whether anything of this process cannot be stopped, or not without harm. What another process
// leads has been looked at by that one.
struct ObstacleCall {
  Job* job;
  bool stuck;
};
long look_for_obstacles(IoThread*, void* argument) {
  ObstacleCall* o = static_cast<ObstacleCall*>(argument);
  Job* j = o->job;
  if (o->stuck) return !stuck_in_kernel(j->text, sizeof(j->text));
  const auto of_the_job = [](int pid) {
    return job_barrier.active() && job_barrier.has_process(pid);
  };
  return may_be_stopped(library.pid, of_the_job, j->text, sizeof(j->text));
}
bool can_be_stopped(Job* j) {
  ObstacleCall call{j, false};
  if (job_barrier.role() == JobBarrier::Role::kMember || io_thread.run(look_for_obstacles, &call))
    return true;
  j->code = kExitRefused;
  return false;
}
// Whoever tries to stop such a thread holds up all others for the time of the try.
bool can_be_stopped_now(Job* j) {
  ObstacleCall call{j, true};
  if (io_thread.run(look_for_obstacles, &call)) return true;
  j->code = kExitTimeout;
  return false;
}

// What takes long and can be done while the application runs: which mappings there are and what is
// behind them, and write protection of what shall be tracked from now on.
struct LookCall {
  Capture* capture;
  uint64_t deadline_us;
};
long read_smaps(IoThread*, void* argument) {
  LookCall* l = static_cast<LookCall*>(argument);
  HostPages& h = l->capture->pages;
  h.pagemap.open(tracker.by_words() ? Pagemap::Source::kWords : Pagemap::Source::kScan);
  h.smaps.read();
  if (!await_lazy_pages(&h.smaps, l->deadline_us)) return false;
  h.smaps.find_policies();
  return true;
}
struct PlanCall {
  Capture* capture;
  bool device;
};
long arm_and_plan(IoThread*, void* argument) {
  PlanCall* p = static_cast<PlanCall*>(argument);
  HostPages& h = p->capture->pages;
  tracker.arm(&h.smaps, &h.pagemap);
  h.make_plan(p->device);
  return 0;
}
long close_pagemap(IoThread*, void* argument) {
  static_cast<Capture*>(argument)->pages.pagemap.close();
  return 0;
}
// glibc keeps the stack of a thread that has ended, and the arena that it took memory from, for the
// next one. The threads for the device's work would be the first to make them, behind our look at
// the mappings' flags, and these would be lost.
void make_room_for_threads() {
  if (device_plugin) run_on_pthread([](void*) {}, nullptr);
}

bool look_at_memory(Job* j, Capture* capture, const char* parent, bool device,
                    uint64_t deadline_us) {
  make_room_for_threads();
  LookCall look{capture, deadline_us};
  if (!io_thread.run(read_smaps, &look))
    return fail(j, kExitTimeout,
                "the memory of the restored program (--lazy) is not all there yet");
  HostPages& h = capture->pages;
  h.register_later = false;
  if (tracker.prepare(&h.smaps, tracker.knows_since(parent))) {
    char text[256];
    ParkCall park{text, sizeof(text)};
    if (device) {
      // Nobody is interrupted inside the driver only for this: it is done in the stop that follows.
      h.register_later = true;
    } else if (io_thread.run(park_on_io_thread, &park)) {
      // Parked for some microseconds; when that does not work, the memory is tracked the next time.
      tracker.register_memory(&h.smaps);
      parking.unpark();
    }
  }
  PlanCall call{capture, device};
  io_thread.run(arm_and_plan, &call);
  return true;
}

// A process of the job that ended in the middle of it is no reason to do without a snapshot: the
// next try is without it.
bool writer_failed(Job* j, const wire::Msg& m) {
  const int code = m.code ? m.code : kExitError;
  return fail(j, m.slot == wire::kFailedMember ? kExitTimeout : code, "%s", m.text);
}
// A writer that failed has the better reason. It closes the ring first and says why then.
bool writer_failed(Job* j, const char* otherwise) {
  static IoThread::Await a;
  a.timeout_ms =
      reinterpret_cast<wire::RingHeader*>(io_thread.ring.data())->writer_dead.load() ? 2000 : 0;
  if (io_thread.run(IoThread::await_message, &a) > 0 && a.message.type == wire::kMsgFailed)
    return writer_failed(j, a.message);
  if (!otherwise[0]) otherwise = "what was captured could not be handed to the writer";
  if (!io_thread.writer_gone) return fail(j, kExitError, "%s", otherwise);
  IoThread::WriterEnd end;
  io_thread.run(IoThread::describe_writer_end, &end);
  return fail(j, kExitError, "%s: %s", otherwise, end.text);
}

// On the I/O thread. Has the copied child done its work?
long copy_has_ended(IoThread* c, void*) {
  int status = 0;
  if (c->child_pid > 0 && sys::call(SYS_wait4, c->child_pid, sys::ptr(&status),
                                    1 /* WNOHANG */ | 0x40000000, 0) == c->child_pid) {
    c->child_pid = 0;
    c->child_killed = (status & 0x7f) == SIGKILL;
  }
  return c->child_pid <= 0;
}
long copy_is_too_large(IoThread* c, void*) {
  return !copy_has_ended(c, nullptr) &&
         memory_pressure_exceeds(c->child_pid, library.config.copy_limit);
}

// Everybody stands still until the copied child has sent its pages, or, past the time for a
// snapshot, is no more.
void wait_for_copy(Job* j) {
  const uint64_t t0 = sys::now_us(), deadline = t0 + j->timeout_ms * 1000;
  ParkCall park{j->text, sizeof(j->text)};
  const bool parked = io_thread.run(park_on_io_thread, &park);
  j->text[0] = 0;
  if (!parked) return;
  while (!io_thread.run(copy_has_ended, nullptr)) {
    if (sys::now_us() > deadline) sys::call(SYS_kill, io_thread.child_pid, 9);
    sys::sleep_us(1000);
  }
  parking.unpark();
  j->held_us += sys::now_us() - t0;
  log_line(LogLevel::kWarn,
           "memory runs short while the program's pages are being written: it was held up for "
           "%lu ms",
           (sys::now_us() - t0) / 1000);
}

// Behind the id, each on a line of its own.
void take_warnings(Job* j, char* text) {
  for (char* s = text; *s; ++s) {
    if (*s != '\n') continue;
    *s = 0;
    copy(j->warnings, sizeof(j->warnings), s + 1);
    return;
  }
}

// Its namespaces count as its environment, which is whoever restores' then.
void warn_of_place(Job* j) {
  const uint32_t parts = foreign_parts(j->asker);
  if (!parts) return;
  char names[192];
  name_parts(parts, names, sizeof(names));
  Text text(j->warnings, sizeof(j->warnings));
  text.used = length(j->warnings);
  text.add(
      "%sthe program has a %s of its own (unshare, bwrap, a container): a restore gives it those "
      "of "
      "whoever restores it, and that one's capabilities. Restore it from inside of such ones",
      text.used ? "\n" : "", names);
}

long add_told_lines(IoThread*, void* argument) {
  Job* j = static_cast<Job*>(argument);
  add_told(j->warnings, sizeof(j->warnings));
  return 0;
}

// Did the kernel end the copy, or the writer where memory is limited? The next try spares memory.
bool memory_ran_out(Job* j, bool writer_ended) {
  if (j->cloned)
    for (int tries = 0; tries < 50 && !io_thread.run(copy_has_ended, nullptr); ++tries)
      sys::sleep_us(1000);
  if (j->spare || !(io_thread.child_killed || (writer_ended && j->memory.bytes != ~0ull)))
    return false;
  j->spare = true;
  fail(j, kExitTimeout, "%s was killed, as it seems for want of memory (%lu MiB were left)",
       io_thread.child_killed ? "the copied process" : "the writer", j->memory.room.left >> 20);
  return true;
}

bool await_durable(Job* j) {
  static IoThread::Await a;
  for (;;) {
    const bool copying = j->cloned && !io_thread.run(copy_has_ended, nullptr);
    a.timeout_ms = copying ? 20 : 1000;
    long r = io_thread.run(IoThread::await_message, &a);
    if (!r && copying && io_thread.run(copy_is_too_large, nullptr)) wait_for_copy(j);
    const bool failed = r > 0 && a.message.type == wire::kMsgFailed;
    if ((r < 0 || failed) && memory_ran_out(j, r < 0)) return false;
    if (r < 0) {
      IoThread::WriterEnd end;
      io_thread.run(IoThread::describe_writer_end, &end);
      return fail(j, kExitError, "the writer ended without publishing the snapshot: %s", end.text);
    }
    if (failed) return writer_failed(j, a.message);
    if (r > 0 && a.message.type == wire::kMsgDurable) break;
    if (library.wanted & kWantCommand) {
      library.wanted &= ~static_cast<uint32_t>(kWantCommand);
      io_thread.run(IoThread::turn_away, nullptr);
    }
  }
  take_warnings(j, a.message.text);
  warn_of_place(j);
  io_thread.run(add_told_lines, j);
  copy(j->id, sizeof(j->id), a.message.text);
  j->logical_bytes = a.message.logical_bytes;
  j->new_bytes = a.message.new_bytes;
  j->stored_bytes = a.message.stored_bytes;
  j->zero_bytes = a.message.zero_bytes;
  return true;
}

// PARKED. Gets the pages out of the way of the application's next step: copied, cloned, or, when
// neither is possible, sent at once.
bool take_pages_out(Job* j, Copy* copy) {
  HostPages& h = copy->capture->pages;
  // A child that has just come may go as soon as it runs again, and its copy would go with it: what
  // is cheap to copy is cheap to send.
  // So is it for one that stops as soon as it is captured.
  const bool at_once = h.plan.copy && job_barrier.role() == JobBarrier::Role::kMember &&
                       (!library.last_snapshot[0] || threads_are_held());
  if (h.plan.copy && !at_once && io_thread.run(copy_on_io_thread, copy->capture)) {
    j->way = "copy";
    return true;
  }
  long pid = -1;
  if (!equal(library.config.copy, "stop") && !at_once && !j->memory.while_stopped) {
    uint64_t t0 = sys::now_us();
    if (capture_before_clone(copy->capture)) pid = io_thread.run(clone_and_send, copy);
    capture_after_clone(copy->capture);
    if (!sys::failed(pid)) {
      learn_clone_cost(sys::now_us() - t0, h.plan.small_pages);
      j->cloned = true;
      j->way = "clone";
      return true;
    }
    log_line(LogLevel::kWarn,
             "the process cannot be copied (error %ld); writing while it stands still", -pid);
  }
  j->way = "stop";
  if (!io_thread.run(send_while_stopped, copy)) return writer_failed(j, copy->text);
  return true;
}

enum class Outcome { kDone, kFailed, kRetry };

// --- the other processes of the job

bool job_failed(Job* j) { return fail(j, job_barrier.code, "%s", job_barrier.text); }

struct LeadCall {
  JobBarrier::Call call;
};
long lead_on_io_thread(IoThread* c, void* argument) {
  return job_barrier.lead(c, static_cast<LeadCall*>(argument)->call);
}
long has_job_on_io_thread(IoThread*, void*) { return has_job(); }
// As the leader: calls all others. Nothing to do for a member, or alone.
bool call_everybody(Job* j, uint64_t deadline_us) {
  if (job_barrier.role() == JobBarrier::Role::kMember ||
      static_cast<Children>(j->children) == Children::kIgnore)
    return true;
  // Asked for each attempt: they come and go.
  j->births = births();
  if (!io_thread.run(has_job_on_io_thread, nullptr)) return true;
  LeadCall l{{static_cast<Children>(j->children), deadline_us, j->stop ? wire::kCtlStop : 0u,
              j->stop_status, j->store, j->tag}};
  return io_thread.run(lead_on_io_thread, &l) || job_failed(j);
}

long meet_on_io_thread(IoThread* c, void* step) {
  return job_barrier.meet(c, *static_cast<wire::JobStep*>(step));
}
bool meet(Job* j, wire::JobStep step) {
  return !job_barrier.active() || io_thread.run(meet_on_io_thread, &step) || job_failed(j);
}

long call_off_on_io_thread(IoThread*, void* argument) {
  const Job* j = static_cast<Job*>(argument);
  job_barrier.call_off(j->code ? j->code : kExitError, j->text);
  return 0;
}
void call_off(Job* j) {
  if (job_barrier.active()) io_thread.run(call_off_on_io_thread, j);
}

long leave_barrier(IoThread*, void*) {
  job_barrier.finish();
  return 0;
}

// Nobody was to take part; is that still so?
bool child_was_born(Job* j) {
  if (job_barrier.active() || static_cast<Children>(j->children) == Children::kIgnore) return false;
  return has_children() || (births() != j->births && io_thread.run(has_job_on_io_thread, nullptr));
}

Outcome given_up(const Job* j) {
  return j->code == kExitTimeout || j->code == kRefusedForNow ? Outcome::kRetry : Outcome::kFailed;
}

// All has been sent, but for what the copied child sends by itself.
void say_end(Job* j) {
  char statistics[1600];
  make_statistics(j, 0, statistics, sizeof(statistics));
  io_thread.post(wire::kMsgEnd, 0, statistics);
  j->said_end = true;
}
// The writer may publish.
bool publish(Job* j) {
  if (!j->said_end) say_end(j);
  return await_durable(j);
}

long note_stopped_on_io_thread(IoThread*, void*) {
  note_stopped_children();
  return 0;
}
long settle_stopped_on_io_thread(IoThread*, void*) {
  settle_stopped_children();
  return 0;
}

// The writer copies files beside our capture (--files-in-snapshot): the program stands as long as
// that takes, but not for ever.
bool files_are_taken(Job* j) {
  static IoThread::Await await;
  await.timeout_ms = kFilesPatienceMs;
  const uint64_t since = sys::now_us();
  const long got = io_thread.run(IoThread::await_message, &await);
  if (got > 0 && await.message.type == wire::kMsgFilesTaken) {
    log_line(LogLevel::kInfo, "%s; the program waited %lu ms for it after its own capture",
             await.message.text, (sys::now_us() - since) / 1000);
    return true;
  }
  if (got > 0) return fail(j, await.message.code, "%s", await.message.text);
  if (got < 0) return fail(j, kExitError, "the writer ended while it copied files");
  return fail(
      j, kExitTimeout,
      "copying the files that changed took more than %lu s, in which the program stood; "
      "name fewer folders for --files-in-snapshot, or use a file system that can clone files",
      kFilesPatienceMs / 1000);
}

// From park to unpark. The gate, closed while the device is frozen, is open again afterwards,
// unless the program is stopped for good (j->id is set then).
Outcome stop_and_capture(Job* j, Capture* capture, Records* records, const DeviceWork& device) {
  const bool frozen = device.frozen;
  if (!meet(j, wire::kJobStaged)) {
    if (frozen) device_plugin->thaw();
    return given_up(j);
  }
  ParkCall park{j->text, sizeof(j->text)};
  uint64_t t0 = sys::now_us();
  bool parked = false;
  // A thread in the middle of something (the driver's above all) is asked again at once; with the
  // gate closed nothing that was staged grows old meanwhile.
  for (const uint64_t patience = t0 + kParkRetriesUs; !parked && t0 < patience;) {
    if (!io_thread.run(park_on_io_thread, &park)) {
      // text says who
    } else if (const char* why =
                   frozen && device_plugin->quiet ? device_plugin->quiet() : nullptr) {
      copy(j->text, sizeof(j->text), why);
      parking.unpark();
    } else if (child_was_born(j)) {
      copy(j->text, sizeof(j->text), "the program has just started another process");
      parking.unpark();
      break;
    } else {
      parked = true;
      break;
    }
    sys::sleep_us(2000);
    t0 = sys::now_us();
  }
  if (!parked) {
    if (frozen) device_plugin->thaw();
    j->code = kExitTimeout;
    return Outcome::kRetry;
  }
  j->text[0] = 0;
  io_thread.run(note_stopped_on_io_thread, nullptr);
  if (!meet(j, wire::kJobParked)) {
    if (frozen) device_plugin->thaw();
    // Stopped children that were let go on stop again when they hear of it.
    call_off(j);
    io_thread.run(settle_stopped_on_io_thread, nullptr);
    parking.unpark();
    return given_up(j);
  }
  uint64_t t1 = sys::now_us();
  j->park_us = t1 - t0;
  const bool files = library.config.files && job_barrier.role() != JobBarrier::Role::kMember;
  if (files) io_thread.post(wire::kMsgFiles, 0, nullptr);
  Copy copy{capture, records, j->device, j->memory.ring_slots};
  CaptureCall call{capture, records, j->device};
  bool ok = io_thread.run(capture_on_io_thread, &call);
  const uint64_t described = sys::now_us();
  ok = ok && capture_descriptors(capture, records);
  uint64_t t2 = sys::now_us();
  j->capture_us = t2 - t1, j->fds_us = t2 - described;
  j->state_us = capture->state_us, j->maps_us = capture->maps_us;
  if (!ok) {
    fail(j, capture->code ? capture->code : kExitRefused, "%s", capture->text);
  } else {
    ok = take_pages_out(j, &copy);
    j->clone_us = sys::now_us() - t2;
  }
  if (ok && files) ok = files_are_taken(j);
  if (!ok)
    call_off(j);
  else
    ok = meet(j, wire::kJobCaptured);
  release_descriptors();
  j->threads = capture->threads, j->mappings = capture->mappings;
  if (ok && j->stop && capture->pages.has_copy && !io_thread.run(send_copy, &copy))
    ok = writer_failed(j, copy.text);
  if (ok && j->stop) {
    // Nothing must happen after this snapshot: the application stays where it is, its calls of the
    // driver at the gate, until the snapshot is safe and the process ends.
    j->stall_us = sys::now_us() - t0;
    j->gate_us = j->device_report.gate_us;
    if ((ok = publish(j))) return Outcome::kDone;
  }
  if (ok && capture->pages.register_later) tracker.register_later(&capture->pages.smaps);
  // From here on a member may end as it likes: the snapshot has, or is being sent, all of it.
  if (ok && job_barrier.role() == JobBarrier::Role::kMember && (!j->device || device.drained) &&
      !capture->pages.has_copy) {
    say_end(j);
    io_thread.run(IoThread::send_posted, nullptr);
  }
  if (frozen) device_plugin->thaw();
  io_thread.run(settle_stopped_on_io_thread, nullptr);
  const uint64_t waking = sys::now_us();
  parking.unpark();
  // Its parent waits for that. All of it has been sent, or is being sent by its copy.
  if (j->said_end && threads_are_held()) stop_early();
  j->stall_us = sys::now_us() - t0;
  j->wake_us = sys::now_us() - waking;
  if (ok && !j->stop && capture->pages.has_copy && !io_thread.run(send_copy, &copy))
    ok = writer_failed(j, copy.text);
  return ok ? Outcome::kDone : given_up(j);
}

bool run_device(Job* j, DeviceWork* w, void (*work)(void*)) {
  w->ok = false;
  if (!run_on_pthread(work, w))
    return fail(j, kExitError, "no thread for the device's work could be made");
  return w->ok || device_failed(j, "the device's memory could not be captured");
}

// What would keep the program waiting at the stop, because there is no room for its copies, goes
// before. That is none of the time in which a snapshot has to come about. Not of a job's memory:
// another process of it may be writing there.
bool send_ahead(Job* j, DeviceWork* w, uint64_t* deadline_us) {
  if (!has_device() || j->stop || job_barrier.active()) return true;
  const uint64_t since = sys::now_us();
  report_phase(j, "ahead");
  if (!run_device(j, w, ahead)) return false;
  if (j->device_report.ahead_rounds) *deadline_us += sys::now_us() - since;
  w->deadline_ms = *deadline_us / 1000;
  return true;
}

// Devices at rest, and what of their memory changed out of the way. Another process of the job may
// write to it: before it is looked at, the devices of all are at rest.
bool take_device(Job* j, DeviceWork* w) {
  report_phase(j, "device");
  if (!job_barrier.active()) return !device_plugin || run_device(j, w, freeze_and_stage);
  return (!device_plugin || run_device(j, w, freeze)) && meet(j, wire::kJobFrozen) &&
         (!w->active || run_device(j, w, stage));
}

// What the program wants to happen first: its hooks have run, nobody is inside a critical section.
bool make_ready(Job* j, uint64_t deadline_us) {
  if (run_snapshot_hooks(deadline_us, j->text, sizeof(j->text)) &&
      close_sections(library.config.gate_ms * 1000, j->text, sizeof(j->text)))
    return true;
  j->code = kExitTimeout;
  return false;
}

Outcome device_gave_up(Job* j, const DeviceWork* w) {
  if (w->producer->failed) writer_failed(j, "the writer is gone");
  return j->code == kExitTimeout ? Outcome::kRetry : Outcome::kFailed;
}

long look_at_room(IoThread*, void* argument) {
  Job* j = static_cast<Job*>(argument);
  j->memory = memory_budget(memory_room(), j->spare);
  return j->memory.enough();
}
bool has_room(Job* j) {
  if (io_thread.run(look_at_room, j)) return true;
  const MemoryRoom& room = j->memory.room;
  return fail(j, kExitRefused,
              "%lu MiB of memory are left of the %lu MiB that %s%s has, and a snapshot takes at "
              "least %lu MiB: raise the limit, or have the program use less",
              room.left >> 20, room.all >> 20, room.group[0] ? "the control group " : "the machine",
              room.group, MemoryBudget::kLeast >> 20);
}

// *deadline_us: of all attempts; later by what was done ahead of the stop.
Outcome attempt(Job* j, uint64_t* deadline_us) {
  j->code = 0;
  j->text[0] = 0;
  __builtin_memset(&j->device_report, 0, sizeof(j->device_report));
  forget_told();
  j->warnings[0] = 0;
  j->way = "none";
  j->said_end = false;
  if (excluded_came_back()) library.last_snapshot[0] = 0;
  io_thread.child_killed = false;
  if (!has_room(j)) {
    call_off(j);
    return Outcome::kFailed;
  }
  static char hello[4000];
  HelloCall say{j, hello, sizeof(hello)};
  io_thread.run(make_hello, &say);
  static IoThread::Open open;
  open.hello = hello;
  open.store = j->store;
  open.timeout_ms = 30000;
  open.memory = j->memory.bytes;
  open.code = 0;
  open.parent[0] = 0;
  open.keyed = false;
  const bool member = job_barrier.role() == JobBarrier::Role::kMember;
  if (io_thread.run(member ? IoThread::open_as_member : IoThread::open_job, &open) != 0) {
    fail(j, open.code, "%s", open.text);
    call_off(j);
    return Outcome::kFailed;
  }
  static Capture capture;
  __builtin_memset(static_cast<void*>(&capture), 0, sizeof(capture));
  Producer producer(io_thread.ring.data(), parent_post, nullptr, j->memory.ring_slots);
  producer.parent = open.parent;
  producer.name_key = open.keyed ? &open.names : nullptr;
  Outcome outcome = Outcome::kFailed;
  DeviceWork work{j, &producer, *deadline_us / 1000};
  if (!capture_start(&capture, j->self_contained || library.config.self_contained,
                     j->memory.for_copies())) {
    fail(j, kExitError, "%s", capture.text);
  } else if (!call_everybody(j, *deadline_us)) {
    outcome = given_up(j);
  } else if (!can_be_stopped(j) || !can_be_stopped_now(j)) {
    outcome = given_up(j);
  } else if (!send_ahead(j, &work, deadline_us)) {
    outcome = device_gave_up(j, &work);
  } else if (look_at_memory(j, &capture, open.parent, has_device(), *deadline_us)) {
    work.ok = make_ready(j, *deadline_us) && take_device(j, &work);
    j->device = work.active;
    if (!work.ok) {
      if (work.frozen) device_plugin->thaw();
      outcome = device_gave_up(j, &work);
    } else {
      Records records(capture.record_memory);
      report_phase(j, "park");
      outcome = stop_and_capture(j, &capture, &records, work);
    }
  }
  open_sections();
  run_resume_hooks();
  io_thread.run(close_pagemap, &capture);
  describe_pages(j, capture.pages);
  capture_finish(&capture);
  if (outcome == Outcome::kDone && !j->id[0]) {
    report_phase(j, "write");
    if (work.active && !work.drained) {
      work.ok = false;
      if (!run_on_pthread(drain, &work) || !work.ok) {
        if (producer.failed)
          writer_failed(j, "the writer is gone");
        else
          device_failed(j, "the device's staged memory could not be sent");
        outcome = Outcome::kFailed;
      }
      j->gate_us = j->device_report.gate_us;
    }
    if (outcome == Outcome::kDone && !publish(j)) outcome = given_up(j);
  }
  if (outcome != Outcome::kDone) {
    // In this order: the leader shall hear from us why, and not from the writer.
    call_off(j);
    io_thread.post(wire::kMsgAbort, 0, j->text);
  }
  io_thread.run(IoThread::close_job, nullptr);
  if (outcome == Outcome::kDone) {
    copy(library.last_snapshot, sizeof(library.last_snapshot), j->id);
    library.last_number = job_barrier.number();
    j->processes = job_barrier.others() + 1;
    tracker.set_base(j->id);
  }
  // (A program that was stopped stands where it is, perhaps with locks of ours, and ends.)
  if (work.staged && device_plugin->settle && !(outcome == Outcome::kDone && j->stop))
    device_plugin->settle(outcome == Outcome::kDone ? j->id : nullptr);
  if (outcome == Outcome::kFailed && j->code == kExitAbsent && open.parent[0]) {
    // What we called unchanged is not in the store any more: once more, without a parent.
    library.last_snapshot[0] = 0;
    return Outcome::kRetry;
  }
  return outcome;
}

}  // namespace

bool take_snapshot(Job* j) {
  j->started_us = sys::now_us();
  uint64_t deadline = j->started_us + j->timeout_ms * 1000;
  uint64_t pause = 20000, refused_since = 0;
  Outcome outcome;
  for (;;) {
    outcome = attempt(j, &deadline);
    io_thread.run(leave_barrier, nullptr);
    const uint64_t now = sys::now_us();
    // An attempt without the time to close the gate would only hide why this one failed.
    if (outcome != Outcome::kRetry || now + pause + library.config.gate_ms * 1000 > deadline) break;
    if (j->code != kRefusedForNow)
      refused_since = 0;
    else if (!refused_since)
      refused_since = now;
    else if (now - refused_since > kRefusalPatienceUs)
      break;
    log_line(LogLevel::kInfo, "trying again: %s", j->text);
    sys::sleep_us(pause);
    if (pause < 1000000) pause *= 2;
  }
  if (j->code == kRefusedForNow) j->code = kExitRefused;
  j->total_us = sys::now_us() - j->started_us;
  return outcome == Outcome::kDone;
}

static long join_on_io_thread(IoThread* c, void* argument) {
  return job_barrier.join(c, static_cast<JobBarrier::Join*>(argument));
}

bool take_part(Job* j, const char* why_not) {
  j->started_us = sys::now_us();
  static JobBarrier::Join join;
  join.leader = library.leader;
  join.door = library.leader_door;
  Outcome outcome = Outcome::kFailed;
  const bool joined = io_thread.run(join_on_io_thread, &join);
  if (joined && why_not) {
    fail(j, kExitRefused, "%s", why_not);
    call_off(j);
  } else if (joined) {
    j->stop = join.call.flags & wire::kCtlStop;
    j->stop_status = join.call.stop_status;
    copy(j->store, sizeof(j->store), join.call.text);
    uint64_t deadline = join.call.deadline_us;
    outcome = attempt(j, &deadline);
  } else {
    job_failed(j);
  }
  io_thread.run(leave_barrier, nullptr);
  if (j->code == kRefusedForNow) j->code = kExitRefused;
  j->total_us = sys::now_us() - j->started_us;
  return outcome == Outcome::kDone;
}

}  // namespace gpuckpt
