// The coordinator: a bare thread that exists from a trigger until its snapshot is durable; at rest
// the process has no thread of ours.
// Its thread descriptor came from ld.so, so that it may call pthread_create and pthread_join; apart
// from that it uses raw calls.

#include <sys/prctl.h>

#include "base/descriptors/handover.h"
#include "base/syscall.h"
#include "base/text/json_writer.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api/api.h"
#include "snapshot/control/snapshot.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/io/reports.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/stopped_process.h"
#include "snapshot/process/refused_state.h"
#include "snapshot/trigger/refusal_note.h"

namespace gpuckpt {
namespace {

void fill_reply(const Snapshot* s, wire::CtlReply* r) {
  __builtin_memset(r, 0, sizeof(*r));
  r->magic = wire::kMagic;
  r->version = wire::kWireVersion;
  r->code = s->code;
  r->stall_us = s->stall_us, r->gate_us = s->gate_us;
  r->logical_bytes = s->logical_bytes, r->new_bytes = s->new_bytes;
  r->stored_bytes = s->stored_bytes, r->zero_bytes = s->zero_bytes;
  r->total_us = s->total_us;
  r->processes = s->processes;
  copy(r->id, sizeof(r->id), s->id);
  copy(r->text, sizeof(r->text), s->text);
  if (s->code || !s->warnings[0]) return;
  r->code = kExitWarnings;
  copy(r->text, sizeof(r->text), s->warnings);
}

// The last reply to the command line.
void hang_up_with(wire::CtlReply* r) {
  r->final = 1;
  io_thread.run([&] {
    io_thread.reply(*r);
    io_thread.hang_up();
    return 0;
  });
}

// Ends the program, whose threads stay parked.
void end_program(const Snapshot* s) {
  if (s->from_command || library.config.stop_status[0]) sys::exit_group(s->stop_status);
  // The program ends as SIGTERM would have ended it. Parked threads block every signal, so it must
  // come to this one.
  sys::sigprocmask_set(~(1ull << (term_signal() - 1)));
  deliver_term();
  sys::exit_group(128 + term_signal());  // the first process of a container survives signals
}

// The last snapshot that became durable, also of the process that this one was restored from: an
// estimate of what the next one will take.
struct {
  uint64_t stall_us, total_us, logical_bytes, new_bytes, stored_bytes;
} last;

void add_last(JsonWriter* json) {
  if (!last.total_us) return;
  json->member("time_to_durable_us", last.total_us);
  json->key("last").begin_object();
  json->member("stall_us", last.stall_us);
  json->member("logical_bytes", last.logical_bytes);
  json->member("new_bytes", last.new_bytes);
  json->member("stored_bytes", last.stored_bytes);
  json->end_object();
}

void finish(Snapshot* s, bool ok) {
  if (ok) {
    last = {s->stall_us, s->total_us, s->logical_bytes, s->new_bytes, s->stored_bytes};
    ++library.snapshots_done;
    log_line(LogLevel::kInfo,
             "snapshot %s is durable: stopped for %lu us, %lu KiB captured, %lu KiB new, %lu KiB "
             "stored, %lu ms",
             s->id, s->stall_us, s->logical_bytes >> 10, s->new_bytes >> 10, s->stored_bytes >> 10,
             s->total_us / 1000);
    // The command line prints them itself.
    if (s->warnings[0] && !s->from_command)
      log_line(LogLevel::kWarn, "snapshot %s: %s", s->id, s->warnings);
  } else {
    ++library.snapshots_failed;
    log_line(LogLevel::kWarn, "no snapshot (%s); the program goes on: %s", s->reason, s->text);
  }
  if (!ok) return_tag(s);
  io_thread.run([&] { return write_status_file(*s), 0; });
  finish_request(s);
  wire::CtlReply reply;
  if (s->from_command) {
    fill_reply(s, &reply);
    copy(reply.phase, sizeof(reply.phase), ok ? "durable" : "failed");
    hang_up_with(&reply);
  }
  if (ok && s->stop) end_program(s);
}

// --- suspend and resume

bool suspended = false;  // the gate is closed and stays so; never in a snapshot

struct Hold {
  bool wake, release;
  const char* gpu_map;
  uint64_t timeout_ms;
  DeviceReport report;
  bool ok;
};
void hold(void* argument) {
  Hold* h = static_cast<Hold*>(argument);
  if (h->wake)
    h->ok = device_plugin->wake(h->gpu_map, &h->report);
  else
    h->ok = device_plugin->suspend(library.config.gate_ms, sys::now_us() / 1000 + h->timeout_ms,
                                   h->release, &h->report);
}

void suspend_or_resume(Snapshot* s, const wire::CtlRequest& r) {
  wire::CtlReply reply;
  const bool wake = r.verb == wire::kCtlResume;
  Hold h{wake, (r.flags & wire::kCtlRelease) != 0, r.store, s->timeout_ms, {}, false};
  if (wake != suspended) {
    s->refuse("%s",
              suspended ? "the process is suspended already" : "the process is not suspended");
  } else if (!device_plugin || !device_plugin->active || !device_plugin->active()) {
    s->refuse("the process does not use the GPU (yet)");
  } else if (!run_on_pthread(hold, &h)) {
    s->fail(kExitError, "no thread for the device's work could be made");
  } else if (!h.ok) {
    s->fail(h.report.code ? h.report.code : kExitError, "%s", h.report.text);
    suspended |= h.report.stays_suspended;
  } else {
    suspended = !wake;
    format(s->text, sizeof(s->text), "%lu", h.report.device_bytes);
  }
  if (s->code)
    log_line(LogLevel::kWarn, "%s: %s", wake ? "not resumed" : "not suspended", s->text);
  else
    log_line(LogLevel::kInfo, wake ? "resumed" : "suspended: %lu bytes of device memory given back",
             h.report.device_bytes);
  fill_reply(s, &reply);
  reply.logical_bytes = h.report.device_bytes;
  hang_up_with(&reply);
}

// What prevents every snapshot of this process; null: nothing.
const char* why_refused() {
  if (suspended) return "the process is suspended: `gpuckpt resume` it first";
  return library.why_not[0] ? library.why_not : nullptr;
}

// Another process leads; its log and its status file tell how the snapshot went.
void serve_join() {
  Snapshot snapshot;
  snapshot.reason = "job";
  snapshot.timeout_ms = library.config.timeout_ms;
  char text[256];
  if (!io_thread.start(text, sizeof(text))) {
    log_line(LogLevel::kError, "no part in the snapshot of the job: %s", text);
    return;
  }
  const bool ok = take_part(&snapshot, why_refused());
  if (ok) {
    ++library.snapshots_done;
    // The leader has answered a signal that came to this process as well.
    library.wanted &= ~static_cast<uint32_t>(kWantSignal);
  } else if (snapshot.code != kExitAbsent) {
    ++library.snapshots_failed;
    log_line(LogLevel::kDebug, "no part in the snapshot of the job: %s", snapshot.text);
  }
  io_thread.stop();
  if (ok && snapshot.stop) sys::exit_group(snapshot.stop_status);
}

// Another process of the job takes the snapshot: its root. A signal is passed on.
bool relay_to_root(bool by_signal) {
  const int root = find_root();
  if (root == library.pid) return false;
  if (by_signal) send_wake(root, wire::kRelayCookie);
  return true;
}

// What the triggers in `wanted` ask for.
void fill_from_triggers(Snapshot* s, uint32_t wanted) {
  s->reason = wanted & kWantCommand                   ? "command"
              : wanted & (kWantTerm | kWantTermTaken) ? "term"
              : wanted & kWantProgram                 ? "program"
              : wanted & kWantTimer                   ? "timer"
                                                      : "signal";
  // Nothing shall happen between the snapshot and the end that SIGTERM is.
  if (wanted == kWantTerm && term_is_fatal()) {
    const char* status = library.config.stop_status;
    s->stop = true;
    s->stop_status = static_cast<int>(scan_dec(&status));
  }
  s->timeout_ms = library.config.timeout_ms;
  s->children = library.config.children;
  copy(s->store, sizeof(s->store), library.config.store);
}

// What a command line asks for, over what the environment says.
void fill_from_command(Snapshot* s, const wire::CtlRequest& r) {
  s->stop = r.flags & wire::kCtlStop;
  s->self_contained = r.flags & wire::kCtlSelfContained;
  if (r.flags & wire::kCtlChildrenAll) s->children = static_cast<uint32_t>(Children::kAll);
  if (r.flags & wire::kCtlChildrenAble) s->children = static_cast<uint32_t>(Children::kAble);
  if (r.flags & wire::kCtlChildrenIgnore) s->children = static_cast<uint32_t>(Children::kIgnore);
  s->stop_status = r.stop_status;
  s->asker = r.asker;
  s->asker_user = r.asker_user;
  if (r.timeout_ms) s->timeout_ms = r.timeout_ms;
  copy(s->tag, sizeof(s->tag), r.tag);
  if (r.store[0]) copy(s->store, sizeof(s->store), r.store);
}

bool takes_children(const Snapshot& s) {
  return static_cast<Children>(s.children) != Children::kIgnore;
}

void reply_with_statistics(Snapshot* s) {
  wire::CtlReply reply;
  fill_reply(s, &reply);
  Text t(reply.text, sizeof(reply.text));
  JsonWriter json(&t);
  json.begin_object();
  json.member("pid", library.host_pid);
  json.member("generation", library.generation);
  json.member("snapshots", library.snapshots_done);
  json.member("failures", library.snapshots_failed);
  add_last(&json);
  json.member("store", library.config.store);
  json.end_object();
  hang_up_with(&reply);
}

// The command line asks the root of the job itself: tells it which process that is.
void reply_with_root(Snapshot* s, int root) {
  wire::CtlReply reply;
  fill_reply(s, &reply);
  reply.root = root;
  hang_up_with(&reply);
}

// Hears the command line that woke us. True: a snapshot is to be taken all the same; what it asked
// for otherwise is done.
bool serve_command(Snapshot* s, uint32_t wanted) {
  wire::CtlRequest r;
  if (!io_thread.run([&] { return io_thread.listen(&r, 5000); })) {
    log_line(LogLevel::kInfo, "a command line woke us and sent no request");
    return wanted != kWantCommand;
  }
  s->from_command = true;
  if (r.verb == wire::kCtlStats) {
    reply_with_statistics(s);
    return false;
  }
  if (r.verb == wire::kCtlSuspend || r.verb == wire::kCtlResume) {
    if (r.timeout_ms) s->timeout_ms = r.timeout_ms;
    suspend_or_resume(s, r);
    return false;
  }
  fill_from_command(s, r);
  const long root = takes_children(*s) ? io_thread.run(find_root) : library.pid;
  if (root != library.pid) reply_with_root(s, static_cast<int>(root));
  return root == library.pid;
}

// Returns true if this process takes a snapshot. Needs the I/O thread.
bool wants_snapshot_here(Snapshot* s, uint32_t wanted) {
  if (wanted & kWantCommand && !serve_command(s, wanted)) return false;
  // The root of the job takes it; it has a timer of its own.
  return !takes_children(*s) || wanted & ~(kWantSignal | kWantTimer) ||
         !io_thread.run([&] { return relay_to_root(wanted & kWantSignal); });
}

void serve(uint32_t wanted) {
  Snapshot snapshot;
  fill_from_triggers(&snapshot, wanted);
  if (wanted & kWantProgram && !take_request(&snapshot)) return;
  char text[256];
  if (!io_thread.start(text, sizeof(text))) {
    log_line(LogLevel::kError, "no snapshot: %s", text);
    if (wanted & kWantCommand) leave_refusal_note(text);
    snapshot.fail(kExitError, "%s", text);
    finish_request(&snapshot);
    return;
  }
  const bool here = wants_snapshot_here(&snapshot, wanted);
  if (here) {
    take_tag(&snapshot);
    if (const char* why = why_refused()) {
      snapshot.refuse("%s", why);
      finish(&snapshot, false);
    } else {
      finish(&snapshot, take_snapshot(&snapshot));
    }
  }
  io_thread.stop();
  // Processes of the job that were asked meanwhile were asked for this one.
  if (here) library.wanted &= ~static_cast<uint32_t>(kWantRelay);
}

}  // namespace

void report_phase(Snapshot* s, const char* phase) {
  log_line(LogLevel::kDebug, "phase %s", phase);
  if (!s->from_command) return;
  wire::CtlReply reply;
  fill_reply(s, &reply);
  copy(reply.phase, sizeof(reply.phase), phase);
  io_thread.run([&] { return io_thread.reply(reply), 0; });
}

void coordinator_main(void*) {
  *reinterpret_cast<int*>(library.coordinator_tls + library.tid_offset) = sys::gettid();
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt"));
  allow_rdtsc_and_cpuid();
  // Our files belong to the effective user, whatever user the thread that was woken is for file
  // accesses (setfsuid).
  sys::call(SYS_setfsuid, sys::call(SYS_geteuid));
  sys::call(SYS_setfsgid, sys::call(SYS_getegid));
  for (;;) {
    // The end of the program (program_end.cc) waits while `wanted` or `serving` has a request, so
    // `serving` is set before the requests leave `wanted`.
    library.serving = ~0u;
    uint32_t wanted = library.wanted.fetch_and(kRunning) & ~static_cast<uint32_t>(kRunning);
    library.serving = wanted;
    if (wanted & kWantJoin) serve_join();
    // The threads of a stopped process, and of one that was restored as stopped, are held until
    // the process has stopped itself; it may be woken for another snapshot meanwhile.
    while (threads_are_held())
      if (stop_again()) serve_join();
    wanted &= ~static_cast<uint32_t>(kWantJoin);
    uint32_t term = wanted & (kWantTerm | kWantTermTaken);
    const uint32_t program = wanted & kWantProgram;
    if (wanted & ~(term | program)) serve(wanted & ~(term | program));
    if (program) {  // a snapshot for each that was asked for
      serve(kWantProgram);
      if (requests_wait()) library.wanted |= kWantProgram;
    }
    if (term) {
      serve(term);
      ++library.terms_served;
      deliver_term();
    }
    uint32_t running = kRunning;
    if (library.wanted.compare_exchange_strong(running, 0)) return;
  }
}

}  // namespace gpuckpt
