#include "snapshot/io/reports.h"

#include "base/files/new_file.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/json_writer.h"
#include "base/text/log.h"
#include "base/text/text.h"
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
  JsonWriter json(&t);
  json.begin_object();
  json.member("pid", library.pid);
  json.member("host_pid", library.host_pid);
  json.member("uid", sys::call(SYS_geteuid));
  json.member("generation", library.generation);
  json.member("reason", s.reason);
  json.member("command", n > 0 ? command : "");
  json.member("exe", exe);
  json.member("cwd", cwd);
  json.member("host", host);
  json.member("kernel", kernel);
  json.member("time", sys::now_us(0) / 1000000);
  if (s.tag[0]) json.member("tag", s.tag);
  json.member("run", run_name());
  // The program is about to end: no restore needs to wait for another snapshot of it.
  if (s.stop || equal(s.reason, "term")) json.member("last", true);
  // The program does not run again, so its files stay as they are.
  if (s.stop) json.member("stop", true);
  if (library.last_snapshot[0] && library.last_number == job_barrier.number())
    json.member("parent", library.last_snapshot);
  json.end_object();
}

namespace {

// What the statistics of a snapshot and the status file have in common.
void add_times(JsonWriter* json, const Snapshot& s) {
  json->member("stall_us", s.stall_us);
  json->member("park_us", s.park_us);
  json->member("capture_us", s.capture_us);
  json->member("clone_us", s.clone_us);
  json->member("gate_us", s.gate_us);
}

void add_device(JsonWriter* json, const DeviceReport& r) {
  json->member("device_bytes", r.device_bytes);
  json->member("moved_bytes", r.moved_bytes);
  json->member("staged_bytes", r.staged_bytes);
  json->member("allocations", r.allocations);
  json->member("drain_us", r.idle_us);  // the older name, which readers know
  json->member("stage_us", r.stage_us);
  json->member("hash_us", r.hash_us);
  json->member("precopy_bytes", r.precopy_bytes);
  json->member("precopy_rounds", r.precopy_rounds);
  json->member("precopy_stop_us", r.precopy_stop_us);
}

}  // namespace

void make_statistics(const Snapshot& s, char* to, size_t room) {
  Text t(to, room);
  JsonWriter json(&t);
  json.begin_object();
  add_times(&json, s);
  json.member("threads", s.threads);
  json.member("mappings", s.mappings);
  json.member("copied_while_running", s.cloned);
  json.member("device", s.device);
  json.member("track", tracker.mode_name());
  json.member("way", s.way);
  json.member("scan_us", s.scan_us);
  json.member("copy_us", s.copy_us);
  json.member("arm_us", s.arm_us);
  json.member("state_us", s.state_us);
  json.member("maps_us", s.maps_us);
  json.member("fds_us", s.fds_us);
  json.member("wake_us", s.wake_us);
  json.member("early_us", s.early_us);
  json.member("early_bytes", s.early_bytes);
  json.member("written_bytes", s.written_bytes);
  json.member("unchanged_bytes", s.unchanged_bytes);
  if (s.device) add_device(&json, s.device_report);
  json.end_object();
}

void write_status_file(const Snapshot& s) {
  const char* path = library.config.status_file;
  if (!path[0]) return;
  char text[4096];
  Text t(text, sizeof(text));
  JsonWriter json(&t);
  json.begin_object();
  json.member("pid", library.host_pid);
  json.member("generation", library.generation);
  json.member("state", s.code ? "failed" : "durable");
  json.member("code", s.code || !s.warnings[0] ? s.code : int{kExitWarnings});
  json.member("id", s.id);
  json.member("reason", s.reason);
  json.member("store", s.store);
  json.member("text", s.code ? s.text : s.warnings);
  add_times(&json, s);
  json.member("total_us", s.total_us);
  json.member("threads", s.threads);
  json.member("mappings", s.mappings);
  json.member("logical_bytes", s.logical_bytes);
  json.member("new_bytes", s.new_bytes);
  json.member("stored_bytes", s.stored_bytes);
  json.member("zero_bytes", s.zero_bytes);
  json.member("snapshots", library.snapshots_done);
  json.member("failures", library.snapshots_failed);
  json.member("time", sys::now_us(0) / 1000000);
  json.end_object();
  t.add("\n");
  const long error = replace_file(path, text, t.used);
  if (error) log_line(LogLevel::kWarn, "cannot write the status file %s (error %ld)", path, -error);
}

}  // namespace gpuckpt
