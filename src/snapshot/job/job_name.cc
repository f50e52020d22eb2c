#include "snapshot/job/job_name.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>

#include "base/environment.h"
#include "base/hash/fnv.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

constexpr char kVariable[] = "GPUCKPT_JOB_NAME=";
constexpr size_t kVariableBytes = sizeof(kVariable) - 1;

// The variable with its value, to which `environ` points as well.
char mark[96];
uint64_t vector_hash;  // of the auxiliary vector, which fork leaves as it is
int first_pid;         // of the job
int named_leader;      // after a restore
std::atomic<uint64_t> forks;

// Known not to be of this job. A process cannot become it: name and vector are inherited.
struct Stranger {
  int pid;
  uint64_t started;
} strangers[4096];
constexpr size_t kStrangers = sizeof(strangers) / sizeof(strangers[0]);

uint64_t hash_of_vector(int pid) {
  char path[40], vector[1024];
  format(path, sizeof(path), "/proc/%d/auxv", pid);
  const long n = read_file(path, vector, sizeof(vector));
  return n > 0 ? fnv(kFnvBasis, vector, static_cast<size_t>(n)) : 0;
}

// Does the process's environment, as it was at its exec, have our name, or one that the job had
// before it was restored? `read`: it could be looked at.
bool has_mark(int pid, bool* read) {
  char text[1024];  // (also in a signal handler, on a stack of the application's)
  format(text, sizeof(text), "/proc/%d/environ", pid);
  const int fd = sys::open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t n = length(mark);
  while (n && mark[n - 1] != '-') --n;
  bool found = false;
  size_t kept = 0;
  for (long got; !found && (got = sys::read(fd, text + kept, sizeof(text) - kept)) > 0;) {
    *read = true;
    const size_t end = kept + static_cast<size_t>(got);
    for (size_t i = 0; !found && i + n <= end; ++i)
      found = text[i] == mark[0] && __builtin_memcmp(text + i, mark, n) == 0;
    kept = end < n - 1 ? end : n - 1;
    __builtin_memmove(text, text + end - kept, kept);
  }
  sys::close(fd);
  return found;
}

bool same_pid_namespace(int pid) {
  char path[40];
  struct stat own, theirs;
  format(path, sizeof(path), "/proc/%d/ns/pid", pid);
  return !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr("/proc/thread-self/ns/pid"),
                                sys::ptr(&own), 0)) &&
         !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&theirs), 0)) &&
         own.st_ino == theirs.st_ino;
}

// Splits "NUMBER-HASH-RANDOM". False: it is no such name.
bool adopt(const char* name) {
  if (length(name) + kVariableBytes + 1 > sizeof(mark)) return false;
  const char* s = name;
  const int pid = static_cast<int>(scan_dec(&s));
  if (pid <= 0 || *s++ != '-') return false;
  const uint64_t hash = scan_hex(&s);
  if (!hash || *s++ != '-') return false;
  scan_hex(&s);
  if (*s) return false;
  first_pid = pid;
  vector_hash = hash;
  format(mark, sizeof(mark), "%s%s", kVariable, name);
  return true;
}

void make_name(uint64_t random) {
  format(mark, sizeof(mark), "%s%d-%lx-%lx", kVariable, first_pid, vector_hash, random);
}

}  // namespace

void find_job_name(char** environment) {
  for (char** e = environment; e && *e; ++e)
    if (starts_with(*e, kVariable) && adopt(*e + kVariableBytes)) return;
  first_pid = sys::getpid();
  vector_hash = hash_of_vector(first_pid);
  uint64_t random = sys::now_us();
  if (const void* bytes = reinterpret_cast<const void*>(getauxval(AT_RANDOM)))
    __builtin_memcpy(&random, static_cast<const char*>(bytes) + 8, sizeof(random));
  // (The bytes are the program's stack protector and pointer guard: no other thread may read them
  // here.)
  random = (random ^ sys::now_us(0)) * 0x9e3779b97f4a7c15ull >> 16;
  constexpr char kChosen[] = "GPUCKPT_RUN_ID=";
  for (char** e = environment; e && *e; ++e) {
    if (!starts_with(*e, kChosen)) continue;
    const char* s = *e + sizeof(kChosen) - 1;
    if (const uint64_t chosen = scan_hex(&s); chosen && !*s) random = chosen;
  }
  make_name(random);
  put_in_environment(mark);
}

const char* job_name() { return mark + kVariableBytes; }
const char* run_name() {
  const char* name = mark + length(mark);
  while (name > mark && name[-1] != '-') --name;
  return name;
}
int first_of_job() { return first_pid; }
int leader_of_job() { return named_leader ? named_leader : first_pid; }

void rename_job(uint64_t random, int leader) {
  make_name(random);
  named_leader = leader;
  __builtin_memset(strangers, 0, sizeof(strangers));
}

bool has_job_name(int pid, uint64_t started) {
  Stranger& known = strangers[static_cast<size_t>(pid) % kStrangers];
  if (known.pid == pid && known.started == started) return false;
  bool read = false;
  const uint64_t hash = hash_of_vector(pid);
  const bool same =
      hash && (hash == vector_hash || has_mark(pid, &read)) && same_pid_namespace(pid);
  // (In the middle of its exec a process has no environment yet.)
  if (!same && (read || !hash)) known = {pid, started};
  return same;
}

void count_birth() { ++forks; }

uint64_t births() {
  struct rusage r;
  __builtin_memset(&r, 0, sizeof(r));
  sys::call(SYS_getrusage, RUSAGE_CHILDREN, sys::ptr(&r));  // of children that were waited for
  return forks + static_cast<uint64_t>(r.ru_minflt);
}

bool may_have_other_members() { return births() || library.generation || first_pid != library.pid; }

size_t environment_length(char* const* environment) {
  size_t n = 0;
  while (environment && environment[n]) ++n;
  return n;
}

char* const* named_environment(char* const* environment, char** room) {
  bool ours = false, named = false, placed = false;
  size_t n = 0;
  for (; environment && environment[n]; ++n) {
    named |= equal(environment[n], mark);
    placed |= equal(environment[n], started_in());
    if (!starts_with(environment[n], "LD_PRELOAD=")) continue;
    for (const char* s = environment[n]; *s && !ours; ++s) ours = starts_with(s, "libgpuckpt.so");
  }
  if (!ours || !mark[0] || (named && placed)) return environment;
  size_t to = 0;
  for (size_t i = 0; i < n; ++i)
    if (!starts_with(environment[i], kVariable) &&
        !starts_with(environment[i], "GPUCKPT_STARTED_IN="))
      room[to++] = environment[i];
  room[to++] = mark;
  room[to++] = started_in();
  room[to] = nullptr;
  return room;
}

}  // namespace gpuckpt
