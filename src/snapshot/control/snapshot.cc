#include "snapshot/control/snapshot.h"

#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/control/attempt.h"
#include "snapshot/control/state.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kRefusalPatienceUs = 2000000;  // with what may be over in a moment

void leave_barrier() {
  io_thread.run([] { return job_barrier.finish(), 0; });
}

void note_end(Snapshot* s) {
  if (s->refused_for_now()) s->code = kExitRefused;
  s->total_us = sys::now_us() - s->started_us;
}

}  // namespace

bool take_snapshot(Snapshot* s) {
  s->started_us = sys::now_us();
  uint64_t deadline = s->started_us + s->timeout_ms * 1000;
  uint64_t pause = 20000, refused_since = 0;
  Outcome outcome;
  for (;;) {
    outcome = attempt(s, &deadline);
    leave_barrier();
    const uint64_t now = sys::now_us();
    // An attempt without the time to close the gate would only hide why this one failed.
    if (outcome != Outcome::kRetry || now + pause + library.config.gate_ms * 1000 > deadline) break;
    if (!s->refused_for_now())
      refused_since = 0;
    else if (!refused_since)
      refused_since = now;
    else if (now - refused_since > kRefusalPatienceUs)
      break;
    log_line(LogLevel::kInfo, "trying again: %s", s->text);
    sys::sleep_us(pause);
    if (pause < 1000000) pause *= 2;
  }
  note_end(s);
  return outcome == Outcome::kDone;
}

bool take_part(Snapshot* s, const char* why_not) {
  s->started_us = sys::now_us();
  JobBarrier::Join join{library.leader, library.leader_listener, {}};
  Outcome outcome = Outcome::kFailed;
  if (!io_thread.run([&] { return job_barrier.join(&io_thread, &join); })) {
    s->fail(job_barrier.code, "%s", job_barrier.text);
  } else if (why_not) {
    s->fail(kExitRefused, "%s", why_not);
    if (job_barrier.active())
      io_thread.run([&] { return job_barrier.call_off(s->code, s->text), 0; });
  } else {
    s->stop = join.call.flags & wire::kCtlStop;
    s->stop_status = join.call.stop_status;
    copy(s->store, sizeof(s->store), join.call.text);
    uint64_t deadline = join.call.deadline_us;
    outcome = attempt(s, &deadline);
  }
  leave_barrier();
  note_end(s);
  return outcome == Outcome::kDone;
}

}  // namespace gpuckpt
