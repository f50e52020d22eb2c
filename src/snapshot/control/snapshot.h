// One snapshot from trigger to durable, as the coordinator sees it.
//
// Owner: the coordinator's stack. Threads: the coordinator, and the I/O thread while it works for
// it. Errors: the Snapshot's own failure.
#pragma once

#include "base/procfs/namespaces.h"
#include "base/text/failure.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/device_plugin.h"

struct gpuckpt_checkpoint;

namespace gpuckpt {

// What was asked for, and what became of it; made new for each request, on the coordinator.
// Its failure says why there is no snapshot.
struct Snapshot : Failure {
  const char* reason = "";  // "signal", "timer", "command", "term", "program"
  bool from_command = false;
  bool stop = false;
  int stop_status = 0;
  uint64_t timeout_ms = 0;
  char store[1024] = "";
  char tag[128] = "";
  bool program_tag = false;               // gpuckpt_tag gave it
  gpuckpt_checkpoint* request = nullptr;  // the program asked for it
  bool self_contained = false;            // --self-contained
  Namespaces asker{};                     // of the command; zeros: not known
  uint32_t asker_user = 0;                // its effective user id, + 1; 0: not known
  uint32_t children = 0;                  // Children (barrier.h)
  uint64_t births = 0;                    // when the job's processes were listed (job_name.h)

  bool spare = false;  // memory ran out in the last attempt: as little as possible

  uint64_t started_us = 0;
  // Results.
  char id[64] = "";
  char warnings[1024] = "";  // of one that became durable: lines
  uint64_t stall_us = 0, park_us = 0, clone_us = 0, gate_us = 0, capture_us = 0, total_us = 0;
  uint64_t logical_bytes = 0, new_bytes = 0, stored_bytes = 0, zero_bytes = 0;
  // How the pages got out, and where the time went.
  const char* way = "none";  // copy, clone, stop
  uint64_t scan_us = 0, copy_us = 0, arm_us = 0, written_bytes = 0, unchanged_bytes = 0;
  uint64_t early_us = 0, early_bytes = 0;  // copied before the stop (host_pages.h)
  bool job_precopied = false;              // an attempt of the job has sent memory before its stop
  uint64_t state_us = 0, maps_us = 0, fds_us = 0, wake_us = 0;  // of the stop
  uint64_t held_us = 0;  // the program waited for its pages to be written (memory_pressure.h)
  size_t threads = 0, mappings = 0;
  uint32_t processes = 1;  // of the job
  bool device = false, cloned = false;
  DeviceReport device_report{};
};

// Takes the snapshot; the application resumes in any case. False: code and text say why not.
bool take_snapshot(Snapshot*);
// The same as a member of a job: another process leads (library.leader). False with code
// kExitAbsent: it does not any more, and nothing was done.
// `why_not` (may be null): it says so, and the snapshot of the job fails.
bool take_part(Snapshot*, const char* why_not);
void report_phase(Snapshot*, const char* phase);

}  // namespace gpuckpt
