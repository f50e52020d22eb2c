#include "snapshot/control/attempt.h"

#include <errno.h>

#include <new>

#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api/api.h"
#include "snapshot/calls/confinement.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/io/reports.h"
#include "snapshot/io/writer_start.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/lazy.h"
#include "snapshot/memory/mapped_object.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/park.h"
#include "snapshot/park/stopped_children.h"
#include "snapshot/park/stopped_process.h"
#include "snapshot/process/limits.h"
#include "snapshot/process/sharing.h"
#include "snapshot/process/warnings.h"
#include "snapshot/trigger/obstacles.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kParkPatienceUs = 200000;  // for one try
constexpr uint64_t kParkRetriesUs = 600000;   // for all, until the gate is opened again
constexpr uint64_t kFilesPatienceMs = 20000;

bool parent_post(void*, uint32_t type, uint32_t slot, const char* text) {
  return io_thread.post(type, slot, text);
}

bool is_member() { return job_barrier.role() == JobBarrier::Role::kMember; }

// glibc keeps the stack and the malloc arena of a thread that has ended for the next thread. This
// makes them before the mappings' flags are read: made later, by the first thread for the device's
// work, their flags would be missing in the snapshot.
void make_room_for_threads() {
  if (has_device()) run_on_pthread([](void*) {}, nullptr);
}

}  // namespace

// --- why there is no snapshot

Outcome Attempt::given_up() const {
  return s_->code == kExitTimeout || s_->refused_for_now() ? Outcome::kRetry : Outcome::kFailed;
}

Outcome Attempt::device_gave_up() {
  if (producer_->failed) writer_failed("the writer process ended before the snapshot was stored");
  return s_->code == kExitTimeout ? Outcome::kRetry : Outcome::kFailed;
}

bool Attempt::job_failed() { return s_->fail(job_barrier.code, "%s", job_barrier.text); }

// The writer says whether another attempt can succeed, as when a process of the job has ended
// during this one: the next attempt is made without that process.
bool Attempt::writer_failed(const wire::Msg& m) {
  const int code = m.code ? m.code : kExitError;
  return s_->fail(wire::another_attempt_helps(m) ? kExitTimeout : code, "%s", m.text);
}

// Fails with the writer's own reason if it sends one: a writer that fails closes the ring first and
// sends the reason after that. `otherwise` is what this side has seen.
bool Attempt::writer_failed(const char* otherwise) {
  const bool dead = reinterpret_cast<wire::RingHeader*>(io_thread.ring.data())->writer_dead.load();
  const long got =
      io_thread.run([&] { return io_thread.await_message(&message_, dead ? 2000 : 0); });
  if (got > 0 && message_.type == wire::kMsgFailed) return writer_failed(message_);
  if (!otherwise[0]) otherwise = "what was captured could not be handed to the writer";
  if (!io_thread.writer_gone) return s_->fail(kExitError, "%s", otherwise);
  char why[240];
  io_thread.run([&] { return io_thread.describe_writer_end(why, sizeof(why)), 0; });
  return s_->fail(kExitError, "%s: %s", otherwise, why);
}

// The namespaces are part of the process's environment, which after a restore is that of the
// restore.
void Attempt::warn_of_namespaces() {
  const uint32_t parts = foreign_parts(s_->asker);
  if (!parts) return;
  char names[192];
  name_namespaces(parts, names, sizeof(names));
  Text text(s_->warnings, sizeof(s_->warnings));
  text.used = length(s_->warnings);
  text.add(
      "%sthe program has a %s of its own (unshare, bwrap, a container): a restore gives it those "
      "of the process that restores it, and its capabilities. Restore it from inside of such ones",
      text.used ? "\n" : "", names);
}

// A restore takes no snapshots but those of its own user, and who started this program may not be
// that any more.
void Attempt::warn_of_owner() {
  const unsigned owner = writer_user(), asker = s_->asker_user - 1;
  if (!s_->asker_user || owner == asker || owner == library.start_user) return;
  add_job_warning(
      "the program has become user %u, who owns the snapshot: user %u restores it with "
      "--any-owner, which continues as user %u, or owns the store first (chown -R)",
      owner, asker, owner);
}

// --- before the program is disturbed

bool Attempt::has_memory() {
  io_thread.run([&] { return memory_ = memory_budget(memory_room(), s_->spare), 0; });
  if (memory_.enough()) return true;
  const MemoryRoom& room = memory_.room;
  return s_->fail(
      kExitRefused,
      "%lu MiB of memory are left of the %lu MiB that %s%s has, and a snapshot takes at "
      "least %lu MiB: raise the limit, or have the program use less",
      room.left >> 20, room.all >> 20, room.group[0] ? "the control group " : "the machine",
      room.group, MemoryBudget::kLeast >> 20);
}

// Under some restrictions of the program not even the writer can be started.
bool Attempt::may_be_restored() {
  char why[sizeof(s_->text)];
  return !confined_for_good(why, sizeof(why)) || s_->fail(kExitRefused, "%s", why);
}

bool Attempt::open_writer() {
  io_thread.run([&] { return make_hello(*s_, hello_, sizeof(hello_)), 0; });
  writer_.memory = memory_.bytes;
  const bool open = io_thread.run([&] {
    return is_member() ? io_thread.open_as_member(&writer_) : io_thread.open_writer(&writer_);
  });
  return open || s_->fail(writer_.code, "%s", writer_.text);
}

// As the leader of a job: calls all its other processes to the attempt. A member, or a process
// alone, has nothing to do.
bool Attempt::call_members() {
  const auto children = static_cast<Children>(s_->children);
  if (is_member() || children == Children::kIgnore) return true;
  // The processes of the job are looked for in each attempt, because they come and go.
  s_->births = births();
  if (!io_thread.run([] { return has_job(); })) return true;
  const uint32_t flags =
      (s_->stop ? wire::kCtlStop : 0u) | (may_precopy() ? 0u : wire::kCtlNoPrecopy);
  const JobBarrier::Call call{children, *deadline_us_, flags, s_->stop_status, s_->store, s_->tag};
  return io_thread.run([&] { return job_barrier.lead(&io_thread, call); }) || job_failed();
}

// Whether something of this process cannot be stopped, or not without harm. The leader has asked
// this about its members already.
bool Attempt::may_be_stopped_now() {
  const auto of_the_job = [](int pid) {
    return job_barrier.active() && job_barrier.has_process(pid);
  };
  const bool may = is_member() || io_thread.run([&] {
    return may_be_stopped(library.pid, of_the_job, s_->text, sizeof(s_->text));
  });
  if (!may) {
    s_->code = kExitRefused;
    return false;
  }
  // A thread that is stuck in the kernel does not park, and all others would wait for it until the
  // attempt gives up.
  bool vfork = false;
  if (!io_thread.run([&] { return stuck_in_kernel(s_->text, sizeof(s_->text), &vfork); }))
    return true;
  s_->code = vfork ? kRefusedForNow : kExitTimeout;
  return false;
}

// Whether memory is sent while the program runs. That makes the stop short and the moment of the
// snapshot later, so it is of no use to a program that stops after the snapshot. In a job, where an
// attempt fails more easily, only one attempt takes that time, and the leader decides for all.
bool Attempt::may_precopy() const {
  return library.config.precopy && !s_->stop && !equal(s_->reason, "term") && !threads_are_held() &&
         !s_->job_precopied && job_barrier.may_precopy() && !memory_.while_stopped;
}

// Sends what is sent of the memory before the stop. The processes of a job wait for each other
// then, so that each copies what was written in that time when no other keeps it waiting any more.
bool Attempt::precopy_memory(Producer* out) {
  HostPages& pages = capture_.pages;
  uint64_t since = sys::now_us();
  const auto move_deadline = [&] {
    const uint64_t now = sys::now_us();
    *deadline_us_ += now - since;
    since = now;
    device_.deadline_ms = *deadline_us_ / 1000;
    job_barrier.set_deadline(*deadline_us_);
  };
  const auto send = [&] { return pages.precopy(out), 0; };
  if (may_precopy()) io_thread.run(send);
  if (pages.streamed_rounds) move_deadline();
  if (!job_barrier.active()) return true;
  const bool met = meet(wire::kJobSent);
  const bool any_sent = job_barrier.shared_state()->precopied.load() > 0;
  s_->job_precopied |= any_sent;
  if (!met || !any_sent) return met;
  move_deadline();
  if (pages.streamed_rounds) io_thread.run(send);
  return true;
}

// What takes long is done while the application runs: listing the mappings and what is behind them,
// and write protection of memory that is tracked from now on.
bool Attempt::look_at_memory() {
  HostPages& pages = capture_.pages;
  const bool device = has_device();
  make_room_for_threads();
  const bool all_there = io_thread.run([&] {
    pages.pagemap.open(tracker.by_words() ? Pagemap::Source::kWords : Pagemap::Source::kScan);
    pages.smaps.read();
    if (!await_lazy_pages(&pages.smaps, *deadline_us_)) return false;
    pages.smaps.find_policies();
    return true;
  });
  if (!all_there)
    return s_->fail(kExitTimeout,
                    "the memory of the restored program (--lazy) is not all there yet");
  pages.register_later = false;
  if (tracker.prepare(&pages.smaps, tracker.knows_since(writer_.parent))) {
    if (device) {
      // No thread is interrupted inside the driver for this alone: the stop that follows registers
      // the memory.
      pages.register_later = true;
    } else if (park_once()) {
      // The threads are parked for some microseconds; where that fails, the memory is tracked from
      // the next snapshot on.
      tracker.register_memory(&pages.smaps);
      parking.unpark();
    }
    s_->text[0] = 0;
  }
  Producer out(io_thread.ring.data(), child_post, nullptr, memory_.ring_slots);
  io_thread.run([&] { return tracker.arm(&pages.smaps, &pages.pagemap), 0; });
  if (!precopy_memory(&out)) return false;
  io_thread.run([&] {
    pages.make_plan(device);
    capture_.expect_eager();
    return 0;
  });
  return true;
}

// Does what the program wants to happen first: its hooks run, and afterwards no thread is inside a
// critical section.
bool Attempt::make_ready() {
  if (run_snapshot_hooks(*deadline_us_, s_->text, sizeof(s_->text)) &&
      close_sections(library.config.gate_ms * 1000, s_->text, sizeof(s_->text)))
    return true;
  s_->code = kExitTimeout;
  return false;
}

// Brings the devices to rest and copies what changed of their memory. Another process of the job
// may write to it: before it is looked at, the devices of all are at rest.
bool Attempt::freeze_device() {
  report_phase(s_, "device");
  if (!job_barrier.active()) return device_.freeze_and_stage();
  return device_.freeze() && meet(wire::kJobFrozen) && device_.stage();
}

// --- the stop

bool Attempt::meet(wire::JobStep step) {
  return !job_barrier.active() ||
         io_thread.run([&] { return job_barrier.meet(&io_thread, step); }) || job_failed();
}

void Attempt::call_off() {
  if (!job_barrier.active()) return;
  io_thread.run([&] {
    job_barrier.call_off(s_->code ? s_->code : kExitError, s_->text);
    return 0;
  });
}

// Whether a process was forked since the attempt found that this one is alone.
bool Attempt::child_was_born() {
  if (job_barrier.active() || static_cast<Children>(s_->children) == Children::kIgnore)
    return false;
  return has_children() || (births() != s_->births && io_thread.run([] { return has_job(); }));
}

void Attempt::look_at_threads() {
  const int own[2] = {static_cast<int>(library.coordinator_tid.load()), io_thread.tid()};
  io_thread.run([&] { return parking.look_before_stop(own, 2), 0; });
}

bool Attempt::park_once() {
  const int own[2] = {static_cast<int>(library.coordinator_tid.load()), io_thread.tid()};
  return io_thread.run(
      [&] { return parking.park(own, 2, kParkPatienceUs, s_->text, sizeof(s_->text)); });
}

// A thread in the middle of something (the driver's above all) is asked again at once; with the
// gate closed nothing that was staged grows old meanwhile. False: text says what prevented it.
bool Attempt::park() {
  const uint64_t patience = sys::now_us() + kParkRetriesUs;
  do {
    stopped_since_us_ = sys::now_us();
    if (park_once()) {
      const char* busy =
          device_.frozen && device_plugin->park_obstacle ? device_plugin->park_obstacle() : nullptr;
      const bool born = !busy && child_was_born();
      if (!busy && !born) {
        s_->text[0] = 0;
        return true;
      }
      copy(s_->text, sizeof(s_->text),
           born ? "the program has just started another process" : busy);
      parking.unpark();
      if (born) break;
    }
    sys::sleep_us(2000);
  } while (sys::now_us() < patience);
  s_->code = parking.blocked() ? kRefusedForNow : kExitTimeout;
  return false;
}

// PARKED. Everything but the pages.
bool Attempt::describe() {
  const uint64_t begin = sys::now_us();
  bool ok = io_thread.run([&] {
    capture_.pages.look_again();
    if (!capture_process(&capture_, host_.records, host_.device)) return false;
    capture_.pages.find_written();
    put_guards(&capture_, host_.records);
    return true;
  });
  const uint64_t described = sys::now_us();
  if (!ok) skip_turn();
  ok = ok && list_descriptors(&capture_, host_.records);
  if (ok && !meet(wire::kJobListed)) return false;
  if (ok && capture_.deferred_count &&
      !io_thread.run([&] { return MappedObject::copy_deferred(&capture_); }))
    return s_->fail(kExitRefused, "no memory to copy the job's shared memory while stopped");
  ok = ok && check_own_sharing(&capture_) && capture_descriptors(&capture_, host_.records);
  const uint64_t end = sys::now_us();
  s_->capture_us = end - begin, s_->fds_us = end - described;
  s_->state_us = capture_.state_us, s_->maps_us = capture_.maps_us;
  return ok || s_->fail(capture_.code ? capture_.code : kExitRefused, "%s", capture_.text);
}

// PARKED. Secures the pages before the application runs again: copies them, clones the process or,
// when neither is possible, sends them at once.
bool Attempt::take_pages_out() {
  HostPages& pages = capture_.pages;
  // A child that has just joined may end as soon as it runs again, and its copy-on-write clone with
  // it; what is cheap to copy is cheap to send, unless it has copied memory that it shares with
  // others. The same holds for a process that stops as soon as it is captured. With a device only a
  // clone can tell whether a lock of libc is held.
  constexpr uint64_t kCheap = 4 << 20;
  const bool at_once = pages.plan.copy && is_member() && !s_->device &&
                       capture_.eager_bytes() <= kCheap &&
                       (!library.last_snapshot[0] || threads_are_held());
  const auto copied = [&] {
    return pages.copy_pages() && (pages.has_copy = !s_->device || ask_libc_in_small_clone(&host_));
  };
  if (pages.plan.copy && !at_once && io_thread.run(copied)) {
    s_->way = "copy";
    return true;
  }
  if (!equal(library.config.copy, "stop") && !at_once && !memory_.while_stopped) {
    long pid = -1;
    const uint64_t begin = sys::now_us();
    if (capture_before_clone(&capture_))
      pid = io_thread.run([&] { return clone_and_send(&host_); });
    capture_after_clone(&capture_);
    if (!sys::failed(pid)) {
      learn_clone_cost(sys::now_us() - begin, pages.plan.small_pages);
      s_->cloned = true;
      s_->way = "clone";
      return true;
    }
    log_line(LogLevel::kWarn,
             "the process cannot be copied (error %ld); writing while it is stopped", -pid);
  }
  s_->way = "stop";
  return io_thread.run([&] { return send_while_stopped(&host_); }) || writer_failed(host_.text);
}

// The writer copies files beside our capture (--files-in-snapshot): the program stays stopped as
// long as that takes, but not for ever.
bool Attempt::await_files() {
  const uint64_t since = sys::now_us();
  const long got =
      io_thread.run([&] { return io_thread.await_message(&message_, kFilesPatienceMs); });
  if (got > 0 && message_.type == wire::kMsgFilesTaken) {
    log_line(LogLevel::kInfo, "%s; the program waited %lu ms for it after its own capture",
             message_.text, (sys::now_us() - since) / 1000);
    return true;
  }
  if (got > 0) return s_->fail(message_.code, "%s", message_.text);
  if (got < 0) return s_->fail(kExitError, "the writer ended while it copied files");
  return s_->fail(
      kExitTimeout,
      "copying the files that changed took more than %lu s, in which the program was stopped; "
      "name fewer folders for --files-in-snapshot, or use a file system that can clone files",
      kFilesPatienceMs / 1000);
}

// From park to unpark. The gate, closed while the device is frozen, is open again afterwards,
// unless the program is stopped for good (s_->id is set then).
Outcome Attempt::stop_and_capture() {
  if (!meet(wire::kJobStaged)) {
    device_.resume();
    return given_up();
  }
  if (!park()) {
    device_.resume();
    return Outcome::kRetry;
  }
  // (A child that is stopped may only be found at the next meeting.)
  if (job_barrier.active()) io_thread.run([] { return note_stopped_children(), 0; });
  announce_turn();
  if (!meet(wire::kJobParked)) {
    device_.resume();
    // Stopped children that were continued stop again when they hear that the attempt is over.
    call_off();
    if (job_has_stopped()) io_thread.run([] { return stop_children_again(), 0; });
    parking.unpark();
    return given_up();
  }
  s_->park_us = sys::now_us() - stopped_since_us_;
  const bool files = library.config.files && !is_member();
  if (files) io_thread.post(wire::kMsgFiles, 0, nullptr);
  bool ok = describe();
  if (ok) {
    const uint64_t described = sys::now_us();
    ok = take_pages_out();
    s_->clone_us = sys::now_us() - described;
  }
  if (ok && files) ok = await_files();
  if (!ok)
    call_off();
  else
    ok = meet(wire::kJobCaptured);
  release_descriptors(&capture_);
  s_->threads = capture_.threads, s_->mappings = capture_.mappings;
  if (ok && s_->stop) {
    if (capture_.pages.has_copy && !io_thread.run([&] { return send_copied_pages(&host_); }))
      ok = writer_failed(host_.text);
    // Nothing may happen after this snapshot: the threads stay parked, and the calls of the driver
    // at the gate, until the snapshot is durable and the process ends.
    s_->stall_us = sys::now_us() - stopped_since_us_;
    s_->gate_us = s_->device_report.gate_us;
    if (ok && (ok = publish())) return Outcome::kDone;
  }
  return wake(ok);
}

// The other processes of the job resume at the same moment as this one. What is left to do here can
// wait, and would take the processors from them.
void Attempt::let_others_wake() const {
  constexpr uint64_t kForEachUs = 100, kMostUs = 50000;
  if (!job_barrier.active()) return;
  const uint64_t others = job_barrier.shared_state()->relative_count;
  sys::sleep_us(others * kForEachUs < kMostUs ? others * kForEachUs : kMostUs);
}

// The program resumes.
Outcome Attempt::wake(bool captured) {
  HostPages& pages = capture_.pages;
  if (captured && pages.register_later) tracker.register_later(&pages.smaps);
  // From here on this member may end: all of it has been sent, or is being sent, to the writer.
  if (captured && is_member() && (!s_->device || device_.drained) && !pages.has_copy) {
    say_end();
    io_thread.run([] { return io_thread.send_posted(), 0; });
  }
  device_.resume();
  if (job_has_stopped()) io_thread.run([] { return stop_children_again(), 0; });
  const uint64_t waking = sys::now_us();
  parking.unpark();
  // The parent waits for this process to stop again. All of the process has been sent, or is being
  // sent by its copy.
  if (said_end_ && threads_are_held()) stop_early();
  s_->stall_us = sys::now_us() - stopped_since_us_;
  s_->wake_us = sys::now_us() - waking;
  let_others_wake();
  if (captured && !s_->stop && pages.has_copy &&
      !io_thread.run([&] { return send_copied_pages(&host_); }))
    captured = writer_failed(host_.text);
  return captured ? Outcome::kDone : given_up();
}

// --- after the stop

void Attempt::note_pages() {
  const HostPages& h = capture_.pages;
  s_->scan_us = h.scan_us, s_->copy_us = h.copy_us, s_->arm_us = tracker.armed_us;
  s_->early_us = h.early_us, s_->early_bytes = h.early_bytes + h.streamed_bytes;
  h.count(&s_->written_bytes, &s_->unchanged_bytes);
  // Memory that was sent before the stop and is unchanged since then counts as written: it has
  // changed since the parent snapshot.
  const uint64_t sent =
      h.streamed_bytes < s_->unchanged_bytes ? h.streamed_bytes : s_->unchanged_bytes;
  s_->written_bytes += sent, s_->unchanged_bytes -= sent;
  log_line(LogLevel::kDebug,
           "pages: %s, way %s (copy %lu us for %lu KiB, clone %lu us expected), %lu KiB early in "
           "%u rounds and %lu "
           "us (%lu KiB sent in %u), scan %lu us, copy %lu us, arm %lu us, written %lu KiB, "
           "unchanged %lu KiB",
           tracker.mode_name(), s_->way, h.plan.copy_us, h.plan.bytes >> 10, h.plan.clone_us,
           h.early_bytes >> 10, h.rounds, h.early_us, h.streamed_bytes >> 10, h.streamed_rounds,
           h.scan_us, h.copy_us, tracker.armed_us, s_->written_bytes >> 10,
           s_->unchanged_bytes >> 10);
}

// The program stays stopped until the copied child has sent its pages, or, past the time for a
// snapshot, was killed.
void Attempt::wait_for_copied_process() {
  const uint64_t begin = sys::now_us(), deadline = begin + s_->timeout_ms * 1000;
  const bool parked = park_once();
  s_->text[0] = 0;
  if (!parked) return;
  while (!io_thread.run(copied_process_has_ended)) {
    if (sys::now_us() > deadline) sys::call(SYS_kill, io_thread.child_pid, 9);
    sys::sleep_us(1000);
  }
  parking.unpark();
  s_->held_us += sys::now_us() - begin;
  log_line(LogLevel::kWarn,
           "memory runs short while the program's pages are being written: it was held up for "
           "%lu ms",
           (sys::now_us() - begin) / 1000);
}

// Whether the kernel ended the copy, or the writer, because memory was short. The next attempt
// takes as little memory as it can.
bool Attempt::memory_ran_out(bool writer_ended) {
  if (s_->cloned)
    for (int tries = 0; tries < 50 && !io_thread.run(copied_process_has_ended); ++tries)
      sys::sleep_us(1000);
  if (s_->spare || !(io_thread.child_killed || (writer_ended && memory_.bytes != ~0ull)))
    return false;
  s_->spare = true;
  s_->fail(kExitTimeout, "%s was killed, probably because memory was short (%lu MiB were left)",
           io_thread.child_killed ? "the copied process" : "the writer", memory_.room.left >> 20);
  return true;
}

// Tells the writer that all has been sent, except what the copied child still sends itself.
void Attempt::say_end() {
  char statistics[1600];
  make_statistics(*s_, statistics, sizeof(statistics));
  io_thread.post(wire::kMsgEnd, 0, statistics);
  said_end_ = true;
}

// Lets the writer publish, and waits for its answer.
bool Attempt::publish() {
  if (!said_end_) say_end();
  return await_durable();
}

bool Attempt::await_durable() {
  for (;;) {
    const bool copying = s_->cloned && !io_thread.run(copied_process_has_ended);
    const long got =
        io_thread.run([&] { return io_thread.await_message(&message_, copying ? 20 : 1000); });
    if (!got && copying && io_thread.run(copied_process_is_too_large)) wait_for_copied_process();
    const bool failed = got > 0 && message_.type == wire::kMsgFailed;
    if ((got < 0 || failed) && memory_ran_out(got < 0)) return false;
    if (got < 0) {
      char why[240];
      io_thread.run([&] { return io_thread.describe_writer_end(why, sizeof(why)), 0; });
      return s_->fail(kExitError, "the writer ended without publishing the snapshot: %s", why);
    }
    if (failed) return writer_failed(message_);
    if (got > 0 && message_.type == wire::kMsgDurable) break;
    if (library.wanted & kWantCommand) {
      library.wanted &= ~static_cast<uint32_t>(kWantCommand);
      io_thread.run([] { return io_thread.turn_away(), 0; });
    }
  }
  // The id, and behind it warnings, each on a line of its own.
  char* end = message_.text;
  while (*end && *end != '\n') ++end;
  if (*end) {
    copy(s_->warnings, sizeof(s_->warnings), end + 1);
    *end = 0;
  }
  warn_of_namespaces();
  warn_of_owner();
  io_thread.run([&] { return append_warnings(s_->warnings, sizeof(s_->warnings)), 0; });
  copy(s_->id, sizeof(s_->id), message_.text);
  s_->logical_bytes = message_.logical_bytes;
  s_->new_bytes = message_.new_bytes;
  s_->stored_bytes = message_.stored_bytes;
  s_->zero_bytes = message_.zero_bytes;
  return true;
}

// --- all of it

void Attempt::finish_capture() {
  open_sections();
  run_resume_hooks();
  io_thread.run([&] { return capture_.pages.pagemap.close(), parking.end_look(), 0; });
  note_pages();
  capture_finish(&capture_);
}

Outcome Attempt::capture() {
  if (!capture_start(&capture_, s_->self_contained || library.config.self_contained,
                     memory_.for_copies())) {
    s_->fail(kExitError, "%s", capture_.text);
    return Outcome::kFailed;
  }
  if (!call_members() || !may_be_stopped_now()) return given_up();
  if (!device_.precopy(deadline_us_)) return device_gave_up();
  if (!look_at_memory()) return given_up();
  look_at_threads();
  const bool ready = make_ready() && freeze_device();
  s_->device = device_.active;
  if (!ready) {
    device_.resume();
    return device_gave_up();
  }
  Records records(capture_.record_memory);
  host_ = {&capture_, &records, s_->device, memory_.ring_slots};
  report_phase(s_, "park");
  return stop_and_capture();
}

Outcome Attempt::drain_and_publish() {
  report_phase(s_, "write");
  if (!device_.drain()) {
    if (producer_->failed) writer_failed("the writer process ended before the snapshot was stored");
    return Outcome::kFailed;
  }
  s_->gate_us = s_->device_report.gate_us;
  return publish() ? Outcome::kDone : given_up();
}

Outcome Attempt::close(Outcome outcome) {
  const bool done = outcome == Outcome::kDone;
  if (!done) {
    // In this order, so that the leader hears the reason from this process and not from the writer.
    call_off();
    io_thread.post(wire::kMsgAbort, 0, s_->text);
    io_thread.run([] { return end_question_to_libc(), 0; });
  }
  io_thread.run([] { return io_thread.close_writer(), 0; });
  if (done) {
    copy(library.last_snapshot, sizeof(library.last_snapshot), s_->id);
    library.last_number = job_barrier.number();
    s_->processes = job_barrier.others() + 1;
    tracker.set_base(s_->id);
  }
  // (A stopped program stays where it is, perhaps with locks of ours, and ends.)
  if (!(done && s_->stop)) device_.end(done ? s_->id : nullptr);
  if (outcome == Outcome::kFailed && s_->code == kExitAbsent && writer_.parent[0]) {
    // Memory that was reported as unchanged is not in the store any more: the next attempt has no
    // parent snapshot.
    library.last_snapshot[0] = 0;
    return Outcome::kRetry;
  }
  return outcome;
}

Outcome Attempt::run() {
  s_->code = 0;
  s_->text[0] = 0;
  s_->device_report = {};
  forget_warnings();
  s_->warnings[0] = 0;
  s_->way = "none";
  if (excluded_came_back()) library.last_snapshot[0] = 0;
  io_thread.child_killed = false;
  if (!may_be_restored() || !has_memory() || !open_writer()) {
    call_off();
    return Outcome::kFailed;
  }
  Producer producer(io_thread.ring.data(), parent_post, nullptr, memory_.ring_slots);
  producer.parent = writer_.parent;
  producer.name_key = writer_.keyed ? &writer_.names : nullptr;
  producer_ = &producer;
  device_ = {s_, &producer, *deadline_us_ / 1000};
  Outcome outcome = capture();
  finish_capture();
  if (outcome == Outcome::kDone && !s_->id[0]) outcome = drain_and_publish();
  return close(outcome);
}

Outcome attempt(Snapshot* s, uint64_t* deadline_us) {
  Region memory = scratch_map(sizeof(Attempt));
  if (!memory) {
    char why[256];
    explain_failure(why, sizeof(why), "no memory for the snapshot's tables", -ENOMEM);
    s->fail(kExitError, "%s", why);
    return Outcome::kFailed;
  }
  const Outcome outcome = (new (memory.data()) Attempt(s, deadline_us))->run();
  scratch_unmap(&memory);
  return outcome;
}

}  // namespace gpuckpt
