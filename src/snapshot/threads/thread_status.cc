#include "snapshot/threads/thread_status.h"

#include "base/procfs/proc.h"
#include "base/text/text.h"
#include "snapshot/calls/seccomp.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/park/park.h"
#include "snapshot/process/capture.h"
#include "snapshot/process/process_head.h"

namespace gpuckpt {
namespace {

uint64_t set_in(const char* status, const char* name) {
  const char* s = status_field(status, name);
  return scan_hex(&s);
}

const char* groups_in(const char* status) { return status_field(status, "Groups:"); }

uint32_t umask_in(const char* status) {
  const char* s = status_field(status, "Umask:");
  return static_cast<uint32_t>(scan_oct(&s));
}

bool same_groups(const char* a, const char* b) {
  const auto ends = [](char c) { return !c || c == '\n'; };
  for (; *a == *b && !ends(*a); ++a, ++b) continue;
  return ends(*a) && ends(*b);
}

}  // namespace

ThreadStatus parse_status(const char* text, const char* own) {
  ThreadStatus to{};
  to.known = true;
  to.pending = set_in(text, "SigPnd:"), to.process_pending = set_in(text, "ShdPnd:");
  to.capabilities = {set_in(text, "CapEff:"), set_in(text, "CapPrm:"), set_in(text, "CapInh:"),
                     set_in(text, "CapBnd:"), set_in(text, "CapAmb:")};
  read_ids(text, "Uid:", to.uid), read_ids(text, "Gid:", to.gid);
  const char* s = status_field(text, "NoNewPrivs:");
  to.no_new_privs = static_cast<uint32_t>(scan_dec(&s));
  to.umask = umask_in(text);
  to.filters = static_cast<uint32_t>(filters_in(text));
  to.unseen_filter = has_unseen_filter(text);
  to.other_groups = !same_groups(groups_in(text), groups_in(own));
  return to;
}

// Whether a thread that has not run can differ from what was seen of it. A signal may wait for it:
// then the kernel counts one of the user ("SigQ: 0/96365"), of all his processes and timers.
bool ThreadStatuses::may_have_changed(const char* own) const {
  const ThreadStatus& before = parking.seen().own();
  const char* queued = info_line(own, "SigQ:");
  return !queued || !starts_with(queued, "0/") || !before.known || before.filters != own_.filters ||
         before.no_new_privs != own_.no_new_privs;
}

bool ThreadStatuses::read_one(int tid, char* text, size_t room) {
  char name[32];
  format(name, sizeof(name), "%d/status", tid);
  return tasks_.read(name, text, room) > 0;
}

ThreadStatuses::ThreadStatuses(CaptureScratch* scratch)
    : threads_(reinterpret_cast<ThreadStatus*>(scratch->thread_statuses)) {
  static_assert(sizeof(scratch->thread_statuses) >= kMostParked * sizeof(ThreadStatus));
  tasks_.open();
  char own[8192], text[8192];
  own[0] = 0;
  if (read_one(static_cast<int>(library.coordinator_tid), own, sizeof(own)))
    own_ = parse_status(own, own);
  const bool changed = may_have_changed(own);
  for (size_t i = 0; i < parking.count(); ++i) {
    const ParkedThread& t = parking.thread(i);
    threads_[i] = {};
    if (t.state != kParked) continue;
    if (!changed && t.unmoved && t.seen->status.uid[0] == own_.uid[0]) {
      threads_[i] = t.seen->status;
      threads_[i].pending = threads_[i].process_pending = 0;
    } else if (read_one(t.tid, text, sizeof(text))) {
      threads_[i] = parse_status(text, own);
    }
  }
}

const char* ThreadStatuses::groups_of(int tid, char* text, size_t room) {
  return read_one(tid, text, room) ? groups_in(text) : "";
}

ThreadStatuses::~ThreadStatuses() { tasks_.close(); }

}  // namespace gpuckpt
