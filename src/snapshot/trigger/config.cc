#include <sys/mman.h>

#include <initializer_list>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/track.h"

namespace gpuckpt {
namespace {

// How wrong settings are told. A process that one under gpuckpt has started has its settings from
// that one, which has told of them.
LogLevel wrong_setting = LogLevel::kWarn;

const char* value_of(char** environment, const char* name) {
  size_t n = length(name);
  for (char** e = environment; e && *e; ++e)
    if (starts_with(*e, name) && (*e)[n] == '=') return *e + n + 1;
  return nullptr;
}

// The writer's environment: a copy that the application cannot overwrite (setproctitle), without
// the loader's settings and the name of the job, to which it does not belong (job_name.h).
char** copy_environment(char** environment) {
  size_t count = 1, bytes = 0;
  for (char** e = environment; e && *e; ++e) ++count, bytes += length(*e) + 1;
  Region r = region_map(count * sizeof(char*) + bytes);
  if (!r) return nullptr;
  char** list = reinterpret_cast<char**>(r.data());
  char* text = r.data() + count * sizeof(char*);
  char** next = list;
  for (char** e = environment; e && *e; ++e) {
    if (starts_with(*e, "LD_") || starts_with(*e, "GPUCKPT_JOB_NAME=")) continue;
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

namespace {

// A whole number of that range.
bool is_number(const char* text, uint64_t least, uint64_t most) {
  const size_t n = length(text);
  if (!n || n > 9 || *text < '0' || *text > '9') return false;
  const uint64_t value = scan_dec(&text);
  return !*text && value >= least && value <= most;
}

// What is handed to the writer is looked at here, where a user reads what is said of it. A
// setting that means nothing is left out.
void check_writers_settings(char** environment) {
  Config& c = library.config;
  uint64_t bytes;
  if (c.keep[0] && !is_number(c.keep, 1, ~0ull)) {
    log_line(wrong_setting, "GPUCKPT_KEEP=%s is not a number of 1 or more; all snapshots stay",
             c.keep);
    c.keep[0] = 0;
  }
  if (c.level[0] && !is_number(c.level, 0, 19)) {
    log_line(wrong_setting, "GPUCKPT_LEVEL=%s is not a number from 0 to 19; taking 1", c.level);
    c.level[0] = 0;
  }
  if (c.purpose[0] && !equal(c.purpose, "balanced") && !equal(c.purpose, "restore") &&
      !equal(c.purpose, "size")) {
    log_line(wrong_setting, "GPUCKPT_FOR=%s is none of balanced, restore, size; taking balanced",
             c.purpose);
    c.purpose[0] = 0;
  }
  if (c.budget[0] && !scan_size(c.budget, &bytes)) {
    log_line(wrong_setting, "GPUCKPT_BUDGET=%s is not a size (500M, 20G); the store is not limited",
             c.budget);
    c.budget[0] = 0;
  }
  if (c.stop_status[0] && !is_number(c.stop_status, 0, 255)) {
    log_line(wrong_setting, "GPUCKPT_STOP_STATUS=%s is not a number from 0 to 255; ignored",
             c.stop_status);
    c.stop_status[0] = 0;
  }
  const char* action = value_of(environment, "GPUCKPT_BUDGET_ACTION");
  if (action && *action && !equal(action, "prune") && !equal(action, "refuse"))
    log_line(wrong_setting,
             "GPUCKPT_BUDGET_ACTION=%s is neither prune nor refuse: snapshots will fail", action);
}

// Which of the words a setting is; the first one, if it is not set or is none of them.
template <size_t kCount>
size_t choice(char** environment, const char* name, const char* const (&words)[kCount]) {
  const char* v = value_of(environment, name);
  if (!v || !*v) return 0;
  char all[80] = "";
  for (size_t i = 0; i < kCount; ++i) {
    if (equal(v, words[i])) return i;
    format(all + length(all), sizeof(all) - length(all), "%s%s", i ? ", " : "", words[i]);
  }
  log_line(wrong_setting, "%s=%s is none of %s; taking %s", name, v, all, words[0]);
  return 0;
}

bool is_on(char** environment, const char* name) {
  const char* v = value_of(environment, name);
  return v && *v && !equal(v, "0");
}

// A folder that is used as it is; one that has no room is not used.
void read_folder(char** environment, const char* name, char* to, size_t room) {
  const char* v = value_of(environment, name);
  if (v && length(v) < room)
    copy(to, room, v);
  else if (v)
    log_line(wrong_setting, "%s is longer than %zu bytes and is ignored: %s", name, room - 1, v);
}

void read_texts(char** environment) {
  Config& c = library.config;
  const char* v = value_of(environment, "GPUCKPT_STORE");
  absolute(c.store, sizeof(c.store), v && *v ? v : "gpuckpt.store");
  struct {
    const char* name;
    char* to;
    size_t room;
  } texts[] = {{"GPUCKPT_JOB", c.job, sizeof(c.job)},
               {"GPUCKPT_WRITER", c.writer, sizeof(c.writer)},
               {"GPUCKPT_LEVEL", c.level, sizeof(c.level)},
               {"GPUCKPT_FOR", c.purpose, sizeof(c.purpose)},
               {"GPUCKPT_KEEP", c.keep, sizeof(c.keep)},
               {"GPUCKPT_BUDGET", c.budget, sizeof(c.budget)},
               {"GPUCKPT_STOP_STATUS", c.stop_status, sizeof(c.stop_status)}};
  for (auto& t : texts)
    if ((v = value_of(environment, t.name))) copy(t.to, t.room, v);
  if ((v = value_of(environment, "GPUCKPT_STATUS_FILE")) && *v)
    absolute(c.status_file, sizeof(c.status_file), v);
  read_folder(environment, "GPUCKPT_SESSION_DIR", c.session_dir, sizeof(c.session_dir));
  v = value_of(environment, "XDG_RUNTIME_DIR");
  if (v && length(v) < sizeof(c.runtime_dir)) copy(c.runtime_dir, sizeof(c.runtime_dir), v);
}

void read_signal(char** environment) {
  Config& c = library.config;
  c.signal = 10;
  const char* v = value_of(environment, "GPUCKPT_SIGNAL");
  if (v && *v && (c.signal = signal_by_name(v)) < 0) {
    log_line(wrong_setting, "GPUCKPT_SIGNAL=%s is no signal we can listen to; listening to none",
             v);
    c.signal = 0;
  }
  c.on_term = choice(environment, "GPUCKPT_ON_TERM", {"ignore", "snapshot"});
  if (c.on_term && c.signal == 15) c.signal = 0;  // one meaning is enough
}

// (The words are in the order of the enumerations.)
void read_choices(char** environment) {
  Config& c = library.config;
  c.outside = static_cast<OutsideConnections>(
      choice(environment, "GPUCKPT_SOCKETS", {"reset", "refuse", "drop"}));
  c.users =
      static_cast<OtherUsers>(choice(environment, "GPUCKPT_USERS", {"tell", "refuse", "trust"}));
  c.children =
      static_cast<uint32_t>(choice(environment, "GPUCKPT_CHILDREN", {"all", "able", "ignore"}));
  c.io_uring = choice(environment, "GPUCKPT_IO_URING", {"off", "on"});
  constexpr const char* kWays[] = {"auto", "copy", "rounds", "stream", "early", "clone", "stop"};
  copy(c.copy, sizeof(c.copy), kWays[choice(environment, "GPUCKPT_COPY", kWays)]);
  const char* precopy = value_of(environment, "GPUCKPT_PRECOPY");
  c.precopy = !precopy || !equal(precopy, "off");  // what else it says the device side reports
  c.self_contained = is_on(environment, "GPUCKPT_SELF_CONTAINED");
  c.files = is_on(environment, "GPUCKPT_FILES");
}

void read_numbers(char** environment) {
  Config& c = library.config;
  const char* v;
  uint64_t page_cache;  // the writer's; said here, where a user reads it
  struct {
    const char* name;
    uint64_t* to;
  } sizes[] = {{"GPUCKPT_COPY_LIMIT", &c.copy_limit}, {"GPUCKPT_PAGE_CACHE", &page_cache}};
  for (auto& size : sizes)
    if ((v = value_of(environment, size.name)) && *v && !scan_size(v, size.to))
      log_line(wrong_setting, "%s=%s is not a size (64M, 2GiB)", size.name, v);
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
      log_line(wrong_setting, "%s=%s is not a duration (30s, 5m, 500ms)", t.name, v);
  }
}

}  // namespace

void read_config(char** environment) {
  log_start(value_of(environment, "GPUCKPT_LOG"));
  wrong_setting = value_of(environment, "GPUCKPT_STARTED_IN") ? LogLevel::kDebug : LogLevel::kWarn;
  read_texts(environment);
  tracker.configure(value_of(environment, "GPUCKPT_TRACK"));
  read_signal(environment);
  read_choices(environment);
  read_numbers(environment);
  check_writers_settings(environment);
  library.config.environment = copy_environment(environment);
}

}  // namespace gpuckpt
