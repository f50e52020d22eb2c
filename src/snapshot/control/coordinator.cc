// The coordinator: a bare thread that exists from a trigger until its snapshot is durable (law 3).
// Its thread descriptor came from ld.so, so that it may call pthread_create and pthread_join; apart
// from that it uses raw calls.

#include <fcntl.h>
#include <sys/prctl.h>

#include "base/handover.h"
#include "base/log.h"
#include "base/new_file.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api/api.h"
#include "snapshot/control/io_thread.h"
#include "snapshot/control/job.h"
#include "snapshot/control/refusal_note.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/stopped_process.h"

namespace gpuckpt {
namespace {

void fill_reply(const Job* j, wire::CtlReply* r) {
  __builtin_memset(r, 0, sizeof(*r));
  r->magic = wire::kMagic;
  r->version = wire::kWireVersion;
  r->code = j->code;
  r->stall_us = j->stall_us, r->gate_us = j->gate_us;
  r->logical_bytes = j->logical_bytes, r->new_bytes = j->new_bytes;
  r->stored_bytes = j->stored_bytes, r->zero_bytes = j->zero_bytes;
  r->total_us = j->total_us;
  r->processes = j->processes;
  copy(r->id, sizeof(r->id), j->id);
  copy(r->text, sizeof(r->text), j->text);
  if (j->code || !j->warnings[0]) return;
  r->code = kExitWarnings;
  copy(r->text, sizeof(r->text), j->warnings);
}

// The last reply to the command line.
void hang_up_with(wire::CtlReply* r) {
  r->final = 1;
  io_thread.run(IoThread::reply, r);
  io_thread.run(IoThread::hang_up, nullptr);
}

// GPUCKPT_STATUS_FILE: the outcome of the last snapshot as one JSON object, replaced atomically.
long write_status(IoThread*, void* argument) {
  const Job* j = static_cast<const Job*>(argument);
  const char* path = library.config.status_file;
  if (!path[0]) return 0;
  static char text[4096];
  Text t(text, sizeof(text));
  t.add("{\"pid\":%d,\"generation\":%u,\"state\":\"%s\",\"code\":%d,\"id\":", library.host_pid,
        library.generation, j->code ? "failed" : "durable",
        j->code          ? j->code
        : j->warnings[0] ? static_cast<int>(kExitWarnings)
                         : 0);
  t.json(j->id);
  t.add(",\"reason\":\"%s\",\"store\":", j->reason), t.json(j->store);
  t.add(",\"text\":"), t.json(j->code ? j->text : j->warnings);
  t.add(
      ",\"stall_us\":%lu,\"park_us\":%lu,\"capture_us\":%lu,\"clone_us\":%lu,\"gate_us\":%lu,"
      "\"total_us\":%lu,"
      "\"threads\":%lu,\"mappings\":%lu,\"logical_bytes\":%lu,\"new_bytes\":%lu,\"stored_bytes\":%"
      "lu,"
      "\"zero_bytes\":%lu,\"snapshots\":%lu,\"failures\":%lu,\"time\":%lu}\n",
      j->stall_us, j->park_us, j->capture_us, j->clone_us, j->gate_us, j->total_us, j->threads,
      j->mappings, j->logical_bytes, j->new_bytes, j->stored_bytes, j->zero_bytes,
      library.snapshots_done, library.snapshots_failed, sys::now_us(0) / 1000000);
  const long error = replace_file(path, text, t.used);
  if (error) log_line(LogLevel::kWarn, "cannot write the status file %s (error %ld)", path, -error);
  return error;
}

// Its threads are parked and stay so.
void end_program(const Job* j) {
  if (j->from_command || library.config.stop_status[0]) sys::exit_group(j->stop_status);
  // As SIGTERM would have ended it. Parked threads block every signal: let it come to this one.
  sys::sigprocmask_set(~(1ull << (term_signal() - 1)));
  deliver_term();
  sys::exit_group(128 + term_signal());  // the first process of a container survives signals
}

// The last one that became durable, also of the process this one was restored from: what the next
// one will take.
struct {
  uint64_t stall_us, total_us, logical_bytes, new_bytes, stored_bytes;
} last;

void add_last(Text* t) {
  if (!last.total_us) return;
  t->add(
      ",\"time_to_durable_us\":%lu,\"last\":{\"stall_us\":%lu,\"logical_bytes\":%lu,"
      "\"new_bytes\":%lu,\"stored_bytes\":%lu}",
      last.total_us, last.stall_us, last.logical_bytes, last.new_bytes, last.stored_bytes);
}

void finish(Job* j, bool ok) {
  if (ok) {
    last = {j->stall_us, j->total_us, j->logical_bytes, j->new_bytes, j->stored_bytes};
    ++library.snapshots_done;
    log_line(LogLevel::kInfo,
             "snapshot %s is durable: stopped for %lu us, %lu KiB captured, %lu KiB new, %lu KiB "
             "stored, %lu ms",
             j->id, j->stall_us, j->logical_bytes >> 10, j->new_bytes >> 10, j->stored_bytes >> 10,
             j->total_us / 1000);
    // The command line prints them itself.
    if (j->warnings[0] && !j->from_command)
      log_line(LogLevel::kWarn, "snapshot %s: %s", j->id, j->warnings);
  } else {
    ++library.snapshots_failed;
    log_line(LogLevel::kWarn, "no snapshot (%s); the program goes on: %s", j->reason, j->text);
  }
  if (!ok) return_tag(j);
  io_thread.run(write_status, j);
  finish_request(j);
  static wire::CtlReply reply;
  if (j->from_command) {
    fill_reply(j, &reply);
    copy(reply.phase, sizeof(reply.phase), ok ? "durable" : "failed");
    hang_up_with(&reply);
  }
  if (ok && j->stop) end_program(j);
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

void suspend_or_resume(Job* j, const wire::CtlRequest& r) {
  static wire::CtlReply reply;
  static Hold h;
  const bool wake = r.verb == wire::kCtlResume;
  h = {wake, (r.flags & wire::kCtlRelease) != 0, r.store, j->timeout_ms, {}, false};
  if (wake != suspended) {
    j->code = kExitRefused;
    copy(j->text, sizeof(j->text),
         suspended ? "the process is suspended already" : "the process is not suspended");
  } else if (!device_plugin || !device_plugin->active || !device_plugin->active()) {
    j->code = kExitRefused;
    copy(j->text, sizeof(j->text), "the process does not use the GPU (yet)");
  } else if (!run_on_pthread(hold, &h)) {
    j->code = kExitError;
    copy(j->text, sizeof(j->text), "no thread for the device's work could be made");
  } else if (!h.ok) {
    j->code = h.report.code ? h.report.code : kExitError;
    copy(j->text, sizeof(j->text), h.report.text);
    suspended |= h.report.stays_suspended;
  } else {
    suspended = !wake;
    format(j->text, sizeof(j->text), "%lu", h.report.device_bytes);
  }
  if (j->code)
    log_line(LogLevel::kWarn, "%s: %s", wake ? "not resumed" : "not suspended", j->text);
  else
    log_line(LogLevel::kInfo, wake ? "resumed" : "suspended: %lu bytes of device memory given back",
             h.report.device_bytes);
  fill_reply(j, &reply);
  reply.logical_bytes = h.report.device_bytes;
  hang_up_with(&reply);
}

// What stands in the way of every snapshot of this process; null: nothing.
const char* why_refused() {
  if (suspended) return "the process is suspended: `gpuckpt resume` it first";
  return library.why_not[0] ? library.why_not : nullptr;
}

// Another process leads: its log and its status file tell how it went.
void serve_join() {
  static Job job;
  __builtin_memset(static_cast<void*>(&job), 0, sizeof(job));
  job.reason = "job";
  job.timeout_ms = library.config.timeout_ms;
  char text[256];
  if (!io_thread.start(text, sizeof(text))) {
    log_line(LogLevel::kError, "no part in the snapshot of the job: %s", text);
    return;
  }
  const bool ok = take_part(&job, why_refused());
  if (ok) {
    ++library.snapshots_done;
    // It has answered a signal that came to us as well.
    library.wanted &= ~static_cast<uint32_t>(kWantSignal);
  } else if (job.code != kExitAbsent) {
    ++library.snapshots_failed;
    log_line(LogLevel::kDebug, "no part in the snapshot of the job: %s", job.text);
  }
  io_thread.stop();
  if (ok && job.stop) sys::exit_group(job.stop_status);
}

long root_of_job(IoThread*, void*) { return find_root(); }

long relay_to_root(IoThread*, void* by_signal) {
  const int root = find_root();
  if (root == library.pid) return false;
  if (*static_cast<bool*>(by_signal)) send_wake(root, wire::kRelayCookie);
  return true;
}

void serve(uint32_t wanted) {
  static Job job;
  __builtin_memset(static_cast<void*>(&job), 0, sizeof(job));
  job.reason = wanted & kWantCommand                   ? "command"
               : wanted & (kWantTerm | kWantTermTaken) ? "term"
               : wanted & kWantProgram                 ? "program"
               : wanted & kWantTimer                   ? "timer"
                                                       : "signal";
  // Nothing shall happen between the snapshot and the end that SIGTERM is.
  if (wanted == kWantTerm && term_is_fatal()) {
    const char* status = library.config.stop_status;
    job.stop = true;
    job.stop_status = static_cast<int>(scan_dec(&status));
  }
  job.timeout_ms = library.config.timeout_ms;
  job.children = library.config.children;
  copy(job.store, sizeof(job.store), library.config.store);
  if (wanted & kWantProgram && !take_request(&job)) return;
  char text[256];
  if (!io_thread.start(text, sizeof(text))) {
    log_line(LogLevel::kError, "no snapshot: %s", text);
    if (wanted & kWantCommand) leave_refusal_note(text);
    job.code = kExitError;
    copy(job.text, sizeof(job.text), text);
    finish_request(&job);
    return;
  }
  if (wanted & kWantCommand) {
    static IoThread::Listen listen;
    listen.timeout_ms = 5000;
    if (io_thread.run(IoThread::listen, &listen) != 1) {
      log_line(LogLevel::kInfo, "somebody woke us for a command and did not come");
      if (wanted == kWantCommand) {
        io_thread.stop();
        return;
      }
    } else {
      const wire::CtlRequest& r = listen.request;
      job.from_command = true;
      if (r.verb == wire::kCtlStats) {
        static wire::CtlReply reply;
        fill_reply(&job, &reply);
        Text t(reply.text, sizeof(reply.text));
        t.add("{\"pid\":%d,\"generation\":%u,\"snapshots\":%lu,\"failures\":%lu", library.host_pid,
              library.generation, library.snapshots_done, library.snapshots_failed);
        add_last(&t);
        t.add(",\"store\":"), t.json(library.config.store);
        t.add("}");
        hang_up_with(&reply);
        io_thread.stop();
        return;
      }
      if (r.verb == wire::kCtlSuspend || r.verb == wire::kCtlResume) {
        if (r.timeout_ms) job.timeout_ms = r.timeout_ms;
        suspend_or_resume(&job, r);
        io_thread.stop();
        return;
      }
      job.stop = r.flags & wire::kCtlStop;
      job.self_contained = r.flags & wire::kCtlSelfContained;
      if (r.flags & wire::kCtlChildrenAll) job.children = static_cast<uint32_t>(Children::kAll);
      if (r.flags & wire::kCtlChildrenAble) job.children = static_cast<uint32_t>(Children::kAble);
      if (r.flags & wire::kCtlChildrenIgnore)
        job.children = static_cast<uint32_t>(Children::kIgnore);
      job.stop_status = r.stop_status;
      job.asker = r.asker;
      if (r.timeout_ms) job.timeout_ms = r.timeout_ms;
      copy(job.tag, sizeof(job.tag), r.tag);
      if (r.store[0]) copy(job.store, sizeof(job.store), r.store);
      const long root = static_cast<Children>(job.children) == Children::kIgnore
                            ? library.pid
                            : io_thread.run(root_of_job, nullptr);
      if (root != library.pid) {
        static wire::CtlReply reply;
        fill_reply(&job, &reply);
        reply.root = static_cast<int>(root);
        hang_up_with(&reply);
        io_thread.stop();
        return;
      }
    }
  }
  // The root of the job takes it; it has a timer of its own.
  bool by_signal = wanted & kWantSignal;
  if (static_cast<Children>(job.children) != Children::kIgnore &&
      !(wanted & ~(kWantSignal | kWantTimer)) && io_thread.run(relay_to_root, &by_signal)) {
    io_thread.stop();
    return;
  }
  take_tag(&job);
  if (const char* why = why_refused()) {
    job.code = kExitRefused;
    copy(job.text, sizeof(job.text), why);
    finish(&job, false);
  } else {
    finish(&job, take_snapshot(&job));
  }
  io_thread.stop();
  // Others of the job who were asked meanwhile were asked for this one.
  library.wanted &= ~static_cast<uint32_t>(kWantRelay);
}

}  // namespace

void report_phase(Job* j, const char* phase) {
  log_line(LogLevel::kDebug, "phase %s", phase);
  if (!j->from_command) return;
  static wire::CtlReply reply;
  fill_reply(j, &reply);
  copy(reply.phase, sizeof(reply.phase), phase);
  io_thread.run(IoThread::reply, &reply);
}

void coordinator_main(void*) {
  *reinterpret_cast<int*>(library.coordinator_tls + library.tid_offset) = sys::gettid();
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt"));
  for (;;) {
    library.serving = ~0u;  // (no moment in which neither word has them: program_end.cc)
    uint32_t wanted = library.wanted.fetch_and(kRunning) & ~static_cast<uint32_t>(kRunning);
    library.serving = wanted;
    if (wanted & kWantJoin) serve_join();
    // (Also in a process that was restored so.)
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
