#include <sys/mman.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "snapshot/state.h"
#include "snapshot/team.h"
#include "snapshot/track.h"

namespace gpuckpt {
namespace {

const char* value_of(char** environment, const char* name) {
  size_t n = length(name);
  for (char** e = environment; e && *e; ++e)
    if (starts_with(*e, name) && (*e)[n] == '=') return *e + n + 1;
  return nullptr;
}

// The writer's environment: a copy that the application cannot overwrite (setproctitle), without
// the loader's settings and the name of the job, to which it does not belong (kin.h).
char** copy_environment(char** environment) {
  size_t count = 1, bytes = 0;
  for (char** e = environment; e && *e; ++e) ++count, bytes += length(*e) + 1;
  Region r = region_map(count * sizeof(char*) + bytes);
  if (!r) return nullptr;
  char** list = reinterpret_cast<char**>(r.data());
  char* text = r.data() + count * sizeof(char*);
  char** next = list;
  for (char** e = environment; e && *e; ++e) {
    if (starts_with(*e, "LD_") || starts_with(*e, "GPUCKPT_FAMILY=")) continue;
    size_t n = length(*e) + 1;
    copy(text, n, *e);
    *next++ = text;
    text += n;
  }
  *next = nullptr;
  return list;
}

void absolute(char* to, size_t room, const char* path) {
  if (path[0] == '/' || starts_with(path, "s3:") || starts_with(path, "http")) {
    copy(to, room, path);
    return;
  }
  long n = sys::call(SYS_getcwd, sys::ptr(to), static_cast<long>(room));
  if (sys::failed(n)) to[0] = 0;
  size_t used = length(to);
  if (starts_with(path, "./")) path += 2;
  format(to + used, room - used, "/%s", path);
}

}  // namespace

int signal_by_name(const char* name) {
  static const struct {
    const char* name;
    int number;
  } names[] = {{"none", 0},  {"HUP", 1},   {"INT", 2},     {"QUIT", 3},  {"USR1", 10},
               {"USR2", 12}, {"ALRM", 14}, {"TERM", 15},   {"CONT", 18}, {"TSTP", 20},
               {"URG", 23},  {"XCPU", 24}, {"VTALRM", 26}, {"PROF", 27}, {"WINCH", 28},
               {"IO", 29},   {"PWR", 30}};
  if (starts_with(name, "SIG")) name += 3;
  for (const auto& n : names)
    if (equal(n.name, name)) return n.number;
  if (starts_with(name, "RTMIN")) {
    name += 5;
    if (*name == '+') ++name;
    int n = 34 + static_cast<int>(scan_dec(&name));
    return n <= 64 ? n : -1;
  }
  if (*name < '0' || *name > '9') return -1;
  int n = static_cast<int>(scan_dec(&name));
  return *name || n > 64 || n == 9 || n == 19 || n == 32 || n == 33 ? -1 : n;
}

void read_config(char** environment) {
  Config& c = library.config;
  log_start(value_of(environment, "GPUCKPT_LOG"));
  const char* v = value_of(environment, "GPUCKPT_STORE");
  absolute(c.store, sizeof(c.store), v && *v ? v : "gpuckpt.store");
  struct {
    const char* name;
    char* to;
    size_t room;
  } texts[] = {{"GPUCKPT_JOB", c.job, sizeof(c.job)},
               {"GPUCKPT_WRITER", c.writer, sizeof(c.writer)},
               {"GPUCKPT_COPY", c.copy, sizeof(c.copy)},
               {"GPUCKPT_LEVEL", c.level, sizeof(c.level)},
               {"GPUCKPT_KEEP", c.keep, sizeof(c.keep)},
               {"GPUCKPT_BUDGET", c.budget, sizeof(c.budget)},
               {"GPUCKPT_STOP_STATUS", c.stop_status, sizeof(c.stop_status)}};
  for (auto& t : texts)
    if ((v = value_of(environment, t.name))) copy(t.to, t.room, v);
  if ((v = value_of(environment, "GPUCKPT_STATUS_FILE")) && *v)
    absolute(c.status_file, sizeof(c.status_file), v);
  v = value_of(environment, "GPUCKPT_SESSION_DIR");
  if (v && *v && length(v) < sizeof(c.session_dir))
    copy(c.session_dir, sizeof(c.session_dir), v);
  else
    format(c.session_dir, sizeof(c.session_dir), "/tmp/gpuckpt-%ld", sys::call(SYS_geteuid));

  tracker.configure(value_of(environment, "GPUCKPT_TRACK"));
  c.signal = 10;
  if ((v = value_of(environment, "GPUCKPT_SIGNAL")) && *v) {
    c.signal = signal_by_name(v);
    if (c.signal < 0) {
      log_line(LogLevel::kWarn,
               "GPUCKPT_SIGNAL=%s is no signal we can listen to; listening to none", v);
      c.signal = 0;
    }
  }
  if ((v = value_of(environment, "GPUCKPT_ON_TERM")) && *v) {
    c.on_term = equal(v, "snapshot");
    if (!c.on_term && !equal(v, "ignore"))
      log_line(LogLevel::kWarn, "GPUCKPT_ON_TERM=%s is neither snapshot nor ignore", v);
  }
  if (c.on_term && c.signal == 15) c.signal = 0;  // one meaning is enough
  if ((v = value_of(environment, "GPUCKPT_SOCKETS")) && *v) {
    c.drop_sockets = equal(v, "drop");
    if (!c.drop_sockets && !equal(v, "refuse"))
      log_line(LogLevel::kWarn, "GPUCKPT_SOCKETS=%s is neither refuse nor drop; refusing", v);
  }
  v = value_of(environment, "GPUCKPT_SELF_CONTAINED");
  c.self_contained = v && *v && !equal(v, "0");
  uint64_t page_cache;  // the writer's; said here, where somebody reads it
  struct {
    const char* name;
    uint64_t* to;
  } sizes[] = {{"GPUCKPT_COPY_LIMIT", &c.copy_limit}, {"GPUCKPT_PAGE_CACHE", &page_cache}};
  for (auto& size : sizes)
    if ((v = value_of(environment, size.name)) && *v && !scan_size(v, size.to))
      log_line(LogLevel::kWarn, "%s=%s is not a size (64M, 2GiB)", size.name, v);
  bool known = !c.copy[0];
  for (const char* way : {"auto", "copy", "early", "clone", "stop"}) known |= equal(c.copy, way);
  if (!known)
    log_line(LogLevel::kWarn,
             "GPUCKPT_COPY=%s is none of auto, copy, early, clone, stop; using auto", c.copy);
  c.children = static_cast<uint32_t>(Children::kAll);
  if ((v = value_of(environment, "GPUCKPT_CHILDREN")) && *v) {
    if (equal(v, "able"))
      c.children = static_cast<uint32_t>(Children::kAble);
    else if (equal(v, "ignore"))
      c.children = static_cast<uint32_t>(Children::kIgnore);
    else if (!equal(v, "all"))
      log_line(LogLevel::kWarn, "GPUCKPT_CHILDREN=%s is none of all, able, ignore; taking all", v);
  }
  struct {
    const char* name;
    uint64_t* to;
    uint64_t standard;
  } times[] = {{"GPUCKPT_EVERY", &c.every_ms, 0},
               {"GPUCKPT_TIMEOUT", &c.timeout_ms, 60000},
               {"GPUCKPT_GATE", &c.gate_ms, 200}};
  for (auto& t : times) {
    *t.to = t.standard;
    if ((v = value_of(environment, t.name)) && *v && !scan_duration_ms(v, t.to))
      log_line(LogLevel::kWarn, "%s=%s is not a duration (30s, 5m, 500ms)", t.name, v);
  }
  c.environment = copy_environment(environment);
}

}  // namespace gpuckpt
