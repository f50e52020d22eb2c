#include "snapshot/job.h"

#include <sched.h>
#include <sys/prctl.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api.h"
#include "snapshot/courier.h"
#include "snapshot/growth.h"
#include "snapshot/kin.h"
#include "snapshot/lazy.h"
#include "snapshot/libc_probe.h"
#include "snapshot/park.h"
#include "snapshot/pump.h"
#include "snapshot/state.h"
#include "snapshot/team.h"
#include "snapshot/track.h"
#include "snapshot/worker.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kParkPatienceUs = 200000;      // for one try
constexpr uint64_t kParkRetriesUs = 600000;       // for all, until the gate is opened again
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
  return courier.post(type, slot, text);
}

struct HelloCall {
  const Job* job;
  char* to;
  size_t room;
};
// On the courier: it opens files, and the application's lowest free descriptors are the
// application's.
long make_hello(Courier*, void* argument) {
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
  if (library.last_snapshot[0] && library.last_number == team.number())
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
  bool active = false, frozen = false, ok = false;
  bool staged = false;  // `ahead` or `stage` was called: to be settled
};

bool has_device() { return device_plugin && device_plugin->active && device_plugin->active(); }

void freeze(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  if (!has_device()) {
    w->ok = true;
    return;
  }
  w->active = true;
  if (!device_plugin->freeze(library.config.gate_ms, w->deadline_ms, &w->job->device_report))
    return;
  w->ok = w->frozen = true;
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
  if (w->ok && w->job->stop) w->ok = device_plugin->drain(w->producer, &w->job->device_report);
  w->ok = w->ok && w->producer->flush();
}

void freeze_and_stage(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  freeze(w);
  if (w->frozen) stage(w);
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
  bool failed = false;
  char text[256] = "";
};

bool child_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return !type || courier.send(courier.child_socket, type, slot, text);
}

// Sends everything of the host's side.
bool send_host(Copy* copy, PumpFrom from) {
  Producer out(courier.ring.data(), child_post, nullptr);
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
  if (ok) ok = courier.send(courier.child_socket, wire::kMsgEnd, 0, nullptr);
  if (!ok)
    courier.send(courier.child_socket, wire::kMsgAbort, 0,
                 copy->text[0] ? copy->text : "the copied process could not send its memory");
  return ok;
}

// On the courier: the copy holds the courier's descriptors and nothing else.
long clone_and_send(Courier* c, void* argument) {
  Copy* copy = static_cast<Copy*>(argument);
  long pid = sys::call(SYS_clone, 0 /* no exit signal */, 0, 0, 0, 0);
  if (pid == 0) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-copy"));
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

long send_while_stopped(Courier*, void* argument) {
  return send_host(static_cast<Copy*>(argument), PumpFrom::kStopped);
}
long send_copy(Courier*, void* argument) {
  return send_host(static_cast<Copy*>(argument), PumpFrom::kCopy);
}

// --- one attempt
// -----------------------------------------------------------------------------------------------------------

struct ParkCall {
  char* text;
  size_t room;
};
long park_on_courier(Courier*, void* argument) {
  ParkCall* p = static_cast<ParkCall*>(argument);
  int own[2] = {static_cast<int>(library.coordinator_tid.load()), courier.tid()};
  return parking.park(own, 2, kParkPatienceUs, p->text, p->room);
}

struct CaptureCall {
  Capture* capture;
  Records* records;
  bool device;
};
long capture_on_courier(Courier*, void* argument) {
  CaptureCall* c = static_cast<CaptureCall*>(argument);
  c->capture->pages.look_again();
  if (!capture_process(c->capture, c->records, c->device)) return false;
  c->capture->pages.find_written();
  put_guards(c->capture, c->records);
  return true;
}
long copy_on_courier(Courier*, void* argument) {
  return static_cast<Capture*>(argument)->pages.copy_pages();
}

// What takes long and can be done while the application runs: which mappings there are and what is
// behind them, and write protection of what shall be tracked from now on.
struct LookCall {
  Capture* capture;
  uint64_t deadline_us;
};
long read_smaps(Courier*, void* argument) {
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
long arm_and_plan(Courier*, void* argument) {
  PlanCall* p = static_cast<PlanCall*>(argument);
  HostPages& h = p->capture->pages;
  tracker.arm(&h.smaps, &h.pagemap);
  h.make_plan(p->device);
  return 0;
}
long close_pagemap(Courier*, void* argument) {
  static_cast<Capture*>(argument)->pages.pagemap.close();
  return 0;
}
bool look_at_memory(Job* j, Capture* capture, const char* parent, bool device,
                    uint64_t deadline_us) {
  LookCall look{capture, deadline_us};
  if (!courier.run(read_smaps, &look))
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
    } else if (courier.run(park_on_courier, &park)) {
      // Parked for some microseconds; when that does not work, the memory is tracked the next time.
      tracker.register_memory(&h.smaps);
      parking.unpark();
    }
  }
  PlanCall call{capture, device};
  courier.run(arm_and_plan, &call);
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
  static Courier::Await a;
  a.timeout_ms =
      reinterpret_cast<wire::RingHeader*>(courier.ring.data())->writer_dead.load() ? 2000 : 0;
  if (courier.run(Courier::await_message, &a) > 0 && a.message.type == wire::kMsgFailed)
    return writer_failed(j, a.message);
  return fail(j, kExitError, "%s", otherwise);
}

// On the courier. Has the copied child done its work?
long copy_has_ended(Courier* c, void*) {
  if (c->child_pid > 0 &&
      sys::call(SYS_wait4, c->child_pid, 0, 1 /* WNOHANG */ | 0x40000000, 0) == c->child_pid)
    c->child_pid = 0;
  return c->child_pid <= 0;
}
long copy_is_too_large(Courier* c, void*) {
  return !copy_has_ended(c, nullptr) && growth_exceeds(c->child_pid, library.config.copy_limit);
}

// Everybody stands still until the copied child has sent its pages, or, past the time for a
// snapshot, is no more.
void wait_for_copy(Job* j) {
  const uint64_t t0 = sys::now_us(), deadline = t0 + j->timeout_ms * 1000;
  ParkCall park{j->text, sizeof(j->text)};
  const bool parked = courier.run(park_on_courier, &park);
  j->text[0] = 0;
  if (!parked) return;
  while (!courier.run(copy_has_ended, nullptr)) {
    if (sys::now_us() > deadline) sys::call(SYS_kill, courier.child_pid, 9);
    sys::sleep_us(1000);
  }
  parking.unpark();
  j->held_us += sys::now_us() - t0;
  log_line(LogLevel::kWarn,
           "memory runs short while the program's pages are being written: it was held up for "
           "%lu ms",
           (sys::now_us() - t0) / 1000);
}

bool await_durable(Job* j) {
  static Courier::Await a;
  for (;;) {
    const bool copying = j->cloned && !courier.run(copy_has_ended, nullptr);
    a.timeout_ms = copying ? 20 : 1000;
    long r = courier.run(Courier::await_message, &a);
    if (!r && copying && courier.run(copy_is_too_large, nullptr)) wait_for_copy(j);
    if (r < 0) return fail(j, kExitError, "the writer ended without publishing the snapshot");
    if (r > 0 && a.message.type == wire::kMsgFailed) return writer_failed(j, a.message);
    if (r > 0 && a.message.type == wire::kMsgDurable) break;
    if (library.wanted & kWantCommand) {
      library.wanted &= ~static_cast<uint32_t>(kWantCommand);
      courier.run(Courier::turn_away, nullptr);
    }
  }
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
  const bool at_once =
      h.plan.copy && team.role() == Team::Role::kMember && !library.last_snapshot[0];
  if (h.plan.copy && !at_once && courier.run(copy_on_courier, copy->capture)) {
    j->way = "copy";
    return true;
  }
  long pid = -1;
  if (!equal(library.config.copy, "stop") && !at_once) {
    uint64_t t0 = sys::now_us();
    if (capture_before_clone(copy->capture)) pid = courier.run(clone_and_send, copy);
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
  if (!courier.run(send_while_stopped, copy)) return writer_failed(j, copy->text);
  return true;
}

enum class Outcome { kDone, kFailed, kRetry };

// --- the other processes of the job

bool team_failed(Job* j) { return fail(j, team.code, "%s", team.text); }

struct LeadCall {
  Team::Call call;
};
long lead_on_courier(Courier* c, void* argument) {
  return team.lead(c, static_cast<LeadCall*>(argument)->call);
}
long has_job_on_courier(Courier*, void*) { return has_job(); }
// As the leader: calls all others. Nothing to do for a member, or alone.
bool call_everybody(Job* j, uint64_t deadline_us) {
  if (team.role() == Team::Role::kMember || static_cast<Children>(j->children) == Children::kIgnore)
    return true;
  // Asked for each attempt: they come and go.
  j->births = births();
  if (!courier.run(has_job_on_courier, nullptr)) return true;
  LeadCall l{{static_cast<Children>(j->children), deadline_us, j->stop ? wire::kCtlStop : 0u,
              j->stop_status, j->store, j->tag}};
  return courier.run(lead_on_courier, &l) || team_failed(j);
}

long meet_on_courier(Courier* c, void* step) {
  return team.meet(c, *static_cast<wire::TeamStep*>(step));
}
bool meet(Job* j, wire::TeamStep step) {
  return !team.active() || courier.run(meet_on_courier, &step) || team_failed(j);
}

long call_off_on_courier(Courier*, void* argument) {
  const Job* j = static_cast<Job*>(argument);
  team.call_off(j->code ? j->code : kExitError, j->text);
  return 0;
}
void call_off(Job* j) {
  if (team.active()) courier.run(call_off_on_courier, j);
}

long leave_team(Courier*, void*) {
  team.finish();
  return 0;
}

// Nobody was to take part; is that still so?
bool child_was_born(Job* j) {
  if (team.active() || static_cast<Children>(j->children) == Children::kIgnore) return false;
  return has_children() || (births() != j->births && courier.run(has_job_on_courier, nullptr));
}

Outcome given_up(const Job* j) {
  return j->code == kExitTimeout || j->code == kRefusedForNow ? Outcome::kRetry : Outcome::kFailed;
}

// All has been sent, but for what the copied child sends by itself.
void say_end(Job* j) {
  char statistics[1600];
  make_statistics(j, 0, statistics, sizeof(statistics));
  courier.post(wire::kMsgEnd, 0, statistics);
  j->said_end = true;
}
// The writer may publish.
bool publish(Job* j) {
  if (!j->said_end) say_end(j);
  return await_durable(j);
}

// From park to unpark. `frozen`: the gate is closed and is open again afterwards, unless the
// program is stopped for good (j->id is set then).
Outcome stop_and_capture(Job* j, Capture* capture, Records* records, bool frozen) {
  if (!meet(j, wire::kTeamStaged)) {
    if (frozen) device_plugin->thaw();
    return given_up(j);
  }
  ParkCall park{j->text, sizeof(j->text)};
  uint64_t t0 = sys::now_us();
  bool parked = false;
  // A thread in the middle of something (the driver's above all) is asked again at once; with the
  // gate closed nothing that was staged grows old meanwhile.
  for (const uint64_t patience = t0 + kParkRetriesUs; !parked && t0 < patience;) {
    if (!courier.run(park_on_courier, &park)) {
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
  if (!meet(j, wire::kTeamParked)) {
    if (frozen) device_plugin->thaw();
    parking.unpark();
    return given_up(j);
  }
  uint64_t t1 = sys::now_us();
  j->park_us = t1 - t0;
  Copy copy{capture, records, j->device};
  CaptureCall call{capture, records, j->device};
  bool ok = courier.run(capture_on_courier, &call);
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
  if (!ok)
    call_off(j);
  else
    ok = meet(j, wire::kTeamCaptured);
  j->threads = capture->threads, j->mappings = capture->mappings;
  if (ok && j->stop && capture->pages.has_copy && !courier.run(send_copy, &copy))
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
  if (ok && team.role() == Team::Role::kMember && !j->device && !capture->pages.has_copy) {
    say_end(j);
    courier.run(Courier::send_posted, nullptr);
  }
  if (frozen) device_plugin->thaw();
  const uint64_t waking = sys::now_us();
  parking.unpark();
  j->stall_us = sys::now_us() - t0;
  j->wake_us = sys::now_us() - waking;
  if (ok && !j->stop && capture->pages.has_copy && !courier.run(send_copy, &copy))
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
  if (!has_device() || j->stop || team.active()) return true;
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
  if (!team.active()) return !device_plugin || run_device(j, w, freeze_and_stage);
  return (!device_plugin || run_device(j, w, freeze)) && meet(j, wire::kTeamFrozen) &&
         (!w->frozen || run_device(j, w, stage));
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

// *deadline_us: of all attempts; later by what was done ahead of the stop.
Outcome attempt(Job* j, uint64_t* deadline_us) {
  j->code = 0;
  j->text[0] = 0;
  __builtin_memset(&j->device_report, 0, sizeof(j->device_report));
  j->way = "none";
  j->said_end = false;
  if (excluded_came_back()) library.last_snapshot[0] = 0;
  static char hello[4000];
  HelloCall say{j, hello, sizeof(hello)};
  courier.run(make_hello, &say);
  static Courier::Open open;
  open.hello = hello;
  open.store = j->store;
  open.timeout_ms = 30000;
  open.code = 0;
  open.parent[0] = 0;
  const bool member = team.role() == Team::Role::kMember;
  if (courier.run(member ? Courier::open_as_member : Courier::open_job, &open) != 0) {
    fail(j, open.code, "%s", open.text);
    call_off(j);
    return Outcome::kFailed;
  }
  static Capture capture;
  __builtin_memset(static_cast<void*>(&capture), 0, sizeof(capture));
  Producer producer(courier.ring.data(), parent_post, nullptr);
  producer.parent = open.parent;
  Outcome outcome = Outcome::kFailed;
  DeviceWork work{j, &producer, *deadline_us / 1000};
  if (!capture_start(&capture, j->self_contained || library.config.self_contained)) {
    fail(j, kExitError, "%s", capture.text);
  } else if (!call_everybody(j, *deadline_us)) {
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
      outcome = stop_and_capture(j, &capture, &records, work.frozen);
    }
  }
  open_sections();
  run_resume_hooks();
  courier.run(close_pagemap, &capture);
  describe_pages(j, capture.pages);
  capture_finish(&capture);
  if (outcome == Outcome::kDone && !j->id[0]) {
    report_phase(j, "write");
    if (work.active) {
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
    courier.post(wire::kMsgAbort, 0, j->text);
    call_off(j);
  }
  courier.run(Courier::close_job, nullptr);
  if (outcome == Outcome::kDone) {
    copy(library.last_snapshot, sizeof(library.last_snapshot), j->id);
    library.last_number = team.number();
    j->processes = team.others() + 1;
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
    courier.run(leave_team, nullptr);
    const uint64_t now = sys::now_us();
    if (outcome != Outcome::kRetry || now + pause > deadline) break;
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

static long join_on_courier(Courier* c, void* argument) {
  return team.join(c, static_cast<Team::Join*>(argument));
}

bool take_part(Job* j, const char* why_not) {
  j->started_us = sys::now_us();
  static Team::Join join;
  join.leader = library.leader;
  join.door = library.leader_door;
  Outcome outcome = Outcome::kFailed;
  const bool joined = courier.run(join_on_courier, &join);
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
    team_failed(j);
  }
  courier.run(leave_team, nullptr);
  if (j->code == kRefusedForNow) j->code = kExitRefused;
  j->total_us = sys::now_us() - j->started_us;
  return outcome == Outcome::kDone;
}

}  // namespace gpuckpt
