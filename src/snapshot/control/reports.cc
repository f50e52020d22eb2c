#include "snapshot/control/reports.h"

#include "base/log.h"
#include "base/new_file.h"
#include "base/proc.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/track.h"

namespace gpuckpt {

void make_hello(const Snapshot& s, char* to, size_t room) {
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
        library.pid, library.host_pid, sys::call(SYS_geteuid), library.generation, s.reason);
  t.json(n > 0 ? command : "");
  t.add(",\"exe\":"), t.json(exe);
  t.add(",\"cwd\":"), t.json(cwd);
  t.add(",\"host\":"), t.json(host);
  t.add(",\"kernel\":"), t.json(kernel);
  t.add(",\"time\":%lu", sys::now_us(0) / 1000000);
  if (s.tag[0]) t.add(",\"tag\":"), t.json(s.tag);
  t.add(",\"run\":"), t.json(run_name());
  // The program is about to end: no restore needs to wait for another snapshot of it.
  if (s.stop || equal(s.reason, "term")) t.add(",\"last\":true");
  // It does not run again: its files stay as they are.
  if (s.stop) t.add(",\"stop\":true");
  if (library.last_snapshot[0] && library.last_number == job_barrier.number())
    t.add(",\"parent\":"), t.json(library.last_snapshot);
  t.add("}");
}

void make_statistics(const Snapshot& s, char* to, size_t room) {
  Text t(to, room);
  t.add(
      "{\"stall_us\":%lu,\"park_us\":%lu,\"capture_us\":%lu,\"clone_us\":%lu,\"gate_us\":%lu,"
      "\"threads\":%lu,"
      "\"mappings\":%lu,\"copied_while_running\":%s,\"device\":%s",
      s.stall_us, s.park_us, s.capture_us, s.clone_us, s.gate_us, s.threads, s.mappings,
      s.cloned ? "true" : "false", s.device ? "true" : "false");
  t.add(
      ",\"track\":\"%s\",\"way\":\"%s\",\"scan_us\":%lu,\"copy_us\":%lu,\"arm_us\":%lu,"
      "\"state_us\":%lu,\"maps_us\":%lu,\"fds_us\":%lu,\"wake_us\":%lu,\"early_us\":%lu,"
      "\"early_bytes\":%lu,\"written_bytes\":%lu,\"unchanged_bytes\":%lu",
      tracker.mode_name(), s.way, s.scan_us, s.copy_us, s.arm_us, s.state_us, s.maps_us, s.fds_us,
      s.wake_us, s.early_us, s.early_bytes, s.written_bytes, s.unchanged_bytes);
  if (s.device)
    t.add(
        ",\"device_bytes\":%lu,\"moved_bytes\":%lu,\"staged_bytes\":%lu,\"allocations\":%lu,"
        "\"drain_"
        "us\":%lu,\"stage_us\":%lu,\"hash_us\":%lu,\"precopy_bytes\":%lu,\"precopy_rounds\":%lu,"
        "\"precopy_stop_us\":%lu",
        s.device_report.device_bytes, s.device_report.moved_bytes, s.device_report.staged_bytes,
        s.device_report.allocations, s.device_report.drain_us, s.device_report.stage_us,
        s.device_report.hash_us, s.device_report.precopy_bytes, s.device_report.precopy_rounds,
        s.device_report.precopy_stop_us);
  t.add("}");
}

void write_status_file(const Snapshot& s) {
  const char* path = library.config.status_file;
  if (!path[0]) return;
  char text[4096];
  Text t(text, sizeof(text));
  t.add("{\"pid\":%d,\"generation\":%u,\"state\":\"%s\",\"code\":%d,\"id\":", library.host_pid,
        library.generation, s.code ? "failed" : "durable",
        s.code          ? s.code
        : s.warnings[0] ? static_cast<int>(kExitWarnings)
                        : 0);
  t.json(s.id);
  t.add(",\"reason\":\"%s\",\"store\":", s.reason), t.json(s.store);
  t.add(",\"text\":"), t.json(s.code ? s.text : s.warnings);
  t.add(
      ",\"stall_us\":%lu,\"park_us\":%lu,\"capture_us\":%lu,\"clone_us\":%lu,\"gate_us\":%lu,"
      "\"total_us\":%lu,"
      "\"threads\":%lu,\"mappings\":%lu,\"logical_bytes\":%lu,\"new_bytes\":%lu,\"stored_bytes\":%"
      "lu,"
      "\"zero_bytes\":%lu,\"snapshots\":%lu,\"failures\":%lu,\"time\":%lu}\n",
      s.stall_us, s.park_us, s.capture_us, s.clone_us, s.gate_us, s.total_us, s.threads, s.mappings,
      s.logical_bytes, s.new_bytes, s.stored_bytes, s.zero_bytes, library.snapshots_done,
      library.snapshots_failed, sys::now_us(0) / 1000000);
  const long error = replace_file(path, text, t.used);
  if (error) log_line(LogLevel::kWarn, "cannot write the status file %s (error %ld)", path, -error);
}

}  // namespace gpuckpt
