#include "snapshot/process/process_head.h"

#include <cpuid.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/calls/seccomp.h"
#include "snapshot/control/control_groups.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/membership.h"
#include "snapshot/process/refused_state.h"
#include "snapshot/process/sharing.h"
#include "snapshot/process/warnings.h"
#include "snapshot/threads/thread_choices.h"

extern "C" void gpuckpt_restore_entry(void* plan) __attribute__((visibility("hidden")));

namespace gpuckpt {

using namespace process;

namespace {

void put_file(Records* r, RecordType type, const char* path) {
  char buffer[16384];
  int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  r->begin(type);
  for (long n; fd >= 0 && (n = sys::read(fd, buffer, sizeof(buffer))) > 0;) r->add(buffer, n);
  r->end();
  if (fd >= 0) sys::close(fd);
}

void put_link(Records* r, RecordType type, const char* link) {
  char path[4096 + 1];
  long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(link), sys::ptr(path), 4096);
  path[n > 0 ? n : 0] = 0;
  r->begin(type);
  r->add_text(path);
  r->end();
}

bool put_cwd(Capture* c, Records* r) {
  struct stat here, named;
  char path[4096 + 16];
  constexpr char kGone[] = " (deleted)";
  const long link =
      sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr("/proc/thread-self/cwd"), sys::ptr(path), 4096);
  path[link > 0 ? link : 0] = 0;
  const long looked = sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr("."), sys::ptr(&here), 0);
  const bool found = !sys::failed(looked);
  const size_t tail = sizeof(kGone) - 1;
  const bool gone = found && here.st_nlink == 0 && path[0] == '/' && length(path) > tail &&
                    equal(path + length(path) - tail, kGone);
  if (gone) path[length(path) - tail] = 0;
  r->begin(kRecCwd);
  r->add_text(path);
  r->end();
  if (gone) {
    r->put(kRecCwdGone, FileId{here.st_dev, here.st_ino});
    const int fd = sys::open(".", O_PATH | O_CLOEXEC);
    put_attributes(c, r, fd, here);
    if (fd >= 0) sys::close(fd);
    return true;
  }
  long n = sys::call(SYS_getcwd, sys::ptr(path), sizeof(path));
  const bool reachable = n > 0 && path[0] == '/';
  const long known =
      found ? sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&named), 0) : looked;
  if (reachable && known == 0 && here.st_ino == named.st_ino) return true;
  // A process that has dropped its rights may have a working directory that it may not read. That
  // the folder is under its root folder is the kernel's word.
  if (reachable && known == -EACCES) return true;
  return c->refuse(
      "the working directory of the process cannot be reached from its root folder; have the "
      "program change to another one");
}

// Not /proc/self: a leader that ended by pthread_exit is a zombie without memory to look at.
constexpr char kStatus[] = "/proc/thread-self/status";

// What /proc tells of the process, each file read once.
struct Told {
  char status[4096];
  ProcStat stat;  // zeros: it cannot be read
};

void put_terminal(const ProcStat& stat, Head* h) {
  h->terminal = stat.pseudo_terminal();
  if (h->sid == h->pid && h->terminal) h->foreground = stat.number(ProcStat::kForeground);
}

// Newer than the headers of some machines this is built on.
constexpr int kGetMdwe = 66, kGetMemoryMerge = 68;

// Before Linux 6.3 there is no way to ask; one registration too many costs a little and breaks
// nothing.
constexpr int kMembarrierGetRegistrations = 1 << 9;
constexpr uint32_t kMembarrierAny = MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED |
                                    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED |
                                    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;

// What /proc/PID/status tells. `system_filters`: of seccomp, in force. False: refused.
bool read_status(Capture* c, const char* text, Head* h, uint32_t* system_filters) {
  if (!*text)
    return c->refuse(
        "/proc/self/status cannot be read: /proc is not mounted where the process sees it (in a "
        "root folder of its own, by chroot?), or is that of another pid namespace");
  read_ids(text, "Uid:", h->uid);
  read_ids(text, "Gid:", h->gid);
  const char* s = status_field(text, "Umask:");
  h->umask = static_cast<uint32_t>(scan_oct(&s));
  s = status_field(text, "Seccomp:");
  h->seccomp = static_cast<uint32_t>(scan_dec(&s));
  if (has_unseen_filter(text))
    return c->refuse(
        "the process has set a system call filter (seccomp) by a system call that gpuckpt does not "
        "see (not by libc), and it cannot be read back");
  if (const char* why = why_filters_stay_lost()) return c->refuse("%s", why);
  *system_filters = static_cast<uint32_t>(filters_in(text)) - remembered_filters();
  if (!*system_filters) h->seccomp = 0;
  if (added_filters(text))
    add_warning(
        "the program runs under a system call filter (seccomp) that was set before it was "
        "executed; a restore is refused where it is not started under as many");
  char moved[192];
  if (changed_namespaces(moved, sizeof(moved)))
    return c->refuse("the process has changed its %s since it started", moved);
  if (!check_rare_process_state(c)) return false;
  s = status_field(text, "CapEff:");
  h->cap_effective = scan_hex(&s);
  if (!starts_with(status_field(text, "x86_Thread_features:"), "0") &&
      starts_with(status_field(text, "x86_Thread_features:"), "shstk"))
    return c->refuse(
        "the process uses shadow stacks (GLIBC_TUNABLES=glibc.cpu.x86_shstk=off turns them off)");
  return true;
}

// Known until the machine starts again, which no process outlives.
constinit char boot_id[sizeof(Head::boot_id)] = "";
constinit uint32_t boot_generation = ~0u;

void ask_boot() {
  const long n = read_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
  if (n > 0 && boot_id[n - 1] == '\n') boot_id[n - 1] = 0;
  boot_generation = library.generation;
}

// Records when and where the snapshot is taken: clocks, boot, kernel and host.
void read_machine(Head* h) {
  h->monotonic_us = sys::now_us(1);
  h->boottime_us = sys::now_us(7);
  h->realtime_us = sys::now_us(0);
  if (boot_generation != library.generation) ask_boot();
  copy(h->boot_id, sizeof(h->boot_id), boot_id);
  struct utsname name;
  if (!sys::failed(sys::call(SYS_uname, sys::ptr(&name)))) {
    copy(h->kernel, sizeof(h->kernel), name.release);
    copy(h->host, sizeof(h->host), name.nodename);
  }
}

// The address at which the launcher enters the library.
void describe_entry(Head* h) {
  h->rseq_offset = library.rseq_offset;
  h->rseq_size = library.rseq_size;
  h->restore_entry = reinterpret_cast<uint64_t>(&gpuckpt_restore_entry);
  h->restore_stack = restore_stack_top();
}

// Settings that the program has asked of the kernel for the whole process.
void read_kernel_settings(Head* h) {
  auto state_of = [](long option, long argument) {
    const long value = sys::call(SYS_prctl, option, argument, 0, 0, 0);
    return sys::failed(value) ? 0 : static_cast<int>(value);
  };
  h->personality = program_personality();
  h->dumpable = static_cast<int>(sys::call(SYS_prctl, PR_GET_DUMPABLE));
  sys::call(SYS_prctl, PR_GET_CHILD_SUBREAPER, sys::ptr(&h->subreaper));
  h->thp_disable = static_cast<int>(sys::call(SYS_prctl, PR_GET_THP_DISABLE));
  const ThreadChoices choices = program_choices();
  h->memory_failure = choices.memory_failure;
  h->memory_merge = state_of(kGetMemoryMerge, 0);
  h->deny_write_exec = state_of(kGetMdwe, 0);
  h->store_bypass = choices.store_bypass;
  h->indirect_branch = choices.indirect_branch;
  char text[64];
  const char* s = text;
  long n = read_file("/proc/self/coredump_filter", text, sizeof(text));
  h->coredump_filter = n > 0 ? static_cast<uint32_t>(scan_hex(&s)) : 0;
  const long registered = sys::call(SYS_membarrier, kMembarrierGetRegistrations, 0, 0);
  h->membarrier = sys::failed(registered) ? kMembarrierAny : static_cast<uint32_t>(registered);
  n = read_file("/proc/self/oom_score_adj", text, sizeof(text));
  s = text;
  h->oom_score_adj = n > 0 ? static_cast<int>(scan_signed(&s)) : 0;
}

// How many slots the futexes of this process alone have; the kernel chooses, or the program.
void put_futex_hash(Records* r) {
  const long slots = sys::call(SYS_prctl, sys::kFutexHash, sys::kGetFutexHashSlots, 0, 0, 0);
  if (!sys::failed(slots)) r->put(kRecFutexHash, static_cast<uint32_t>(slots));
}

void put_groups(Records* r) {
  uint32_t groups[1024];
  const long count = sys::call(SYS_getgroups, 1024, sys::ptr(groups));
  r->begin(kRecGroups, count > 0 ? static_cast<uint32_t>(count) : 0);
  if (count > 0) r->add(groups, static_cast<uint64_t>(count) * 4);
  r->end();
}

bool put_head(Capture* c, const Told& told, Records* r, bool device_present) {
  Head h;
  __builtin_memset(&h, 0, sizeof(h));
  h.magic = kFormatMagic;
  h.version = kFormatVersion;
  h.generation = library.generation;
  h.pid = library.pid;
  h.host_pid = library.host_pid;
  h.host_start_time = host_start_time();
  h.pgid = static_cast<int>(sys::call(SYS_getpgid, 0));
  h.sid = static_cast<int>(sys::call(SYS_getsid, 0));
  uint32_t system_filters;
  if (!read_status(c, told.status, &h, &system_filters)) return false;
  read_machine(&h);
  describe_entry(&h);
  h.device_present = device_present;
  h.ppid = job_barrier.active() ? static_cast<int>(sys::call(SYS_getppid)) : 0;
  if (h.ppid && job_barrier.has_process(h.ppid) && !check_exit_signal(c, h.pid)) return false;
  read_kernel_settings(&h);
  put_terminal(told.stat, &h);
  r->put(kRecHead, h);
  r->put(kRecSystemFilters, system_filters);
  if (h.sid > 0 && h.sid != h.pid && !lives(h.sid) && !job_barrier.has_process(h.sid))
    put_mark(r, kRecLeaderless);
  if (!check_sharing(c)) return false;
  if (shares_folders(h.ppid, h.pid)) put_mark(r, kRecSharesFolders);
  put_futex_hash(r);
  put_groups(r);
  put_control_groups(r);
  return true;
}

void put_mm(const ProcStat& stat, Records* r) {
  Mm mm;
  __builtin_memset(&mm, 0, sizeof(mm));
  const auto& value = stat.field;
  mm.start_code = value[26], mm.end_code = value[27], mm.start_stack = value[28];
  mm.start_data = value[45], mm.end_data = value[46], mm.start_brk = value[47];
  mm.arg_start = value[48], mm.arg_end = value[49], mm.env_start = value[50],
  mm.env_end = value[51];
  mm.brk = static_cast<uint64_t>(sys::call(SYS_brk, 0));
  r->put(kRecMm, mm);
}

uint64_t locked_kib(const char* status) {
  const char* s = status_field(status, "VmLck:");
  while (*s == ' ') ++s;
  return scan_dec(&s);
}

// The kernel's file is not readable for a process that has dropped its ids; the call is from Linux
// 6.4 on.
void put_auxv(Records* r) {
  constexpr int kGetAuxv = 0x41555856;
  uint64_t vector[128];  // pairs
  if (sys::failed(sys::call(SYS_prctl, kGetAuxv, sys::ptr(vector), sizeof(vector), 0, 0)))
    return put_file(r, kRecAuxv, "/proc/thread-self/auxv");
  size_t n = 0;
  while (n + 2 < sizeof(vector) / sizeof(vector[0]) && vector[n] != AT_NULL) n += 2;
  r->begin(kRecAuxv);
  r->add(vector, (n + 2) * sizeof(vector[0]));
  r->end();
}

uint64_t locked_kib_now() {
  char status[4096];
  return read_file(kStatus, status, sizeof(status)) > 0 ? locked_kib(status) : 0;
}

// mlockall(MCL_FUTURE), of which nothing tells but a new mapping. There was one when `told` was
// read: where nothing was locked then, the next one would not be either.
void put_future_locks(const Told& told, Records* r) {
  if (!locked_kib(told.status)) return;
  const uint64_t before = locked_kib_now();
  Region probe = scratch_map(4096);
  if (!probe) return;
  if (locked_kib_now() > before) {
    uint8_t present = 0;
    sys::call(SYS_mincore, static_cast<long>(probe.start), 4096, sys::ptr(&present));
    const uint32_t how = MCL_FUTURE | (present & 1 ? 0 : MCL_ONFAULT);
    r->put(kRecFutureLocks, how);
  }
  scratch_unmap(&probe);
}

void ask(Told* told) {
  Region made = scratch_map(4096);  // for put_future_locks()
  if (read_file(kStatus, told->status, sizeof(told->status)) <= 0) told->status[0] = 0;
  scratch_unmap(&made);
  if (!read_stat("/proc/thread-self/stat", &told->stat)) told->stat = {};
}

constexpr uint32_t kCpuLeaves[][2] = {
    {0, 0},    {1, 0},          {7, 0},          {7, 1},          {0xd, 0},        {0xd, 1},
    {0xd, 2},  {0xd, 5},        {0xd, 6},        {0xd, 7},        {0xd, 9},        {0xd, 17},
    {0xd, 18}, {0x80000000, 0}, {0x80000001, 0}, {0x80000002, 0}, {0x80000003, 0}, {0x80000004, 0}};
constexpr size_t kCpuAnswers = sizeof(kCpuLeaves) / sizeof(kCpuLeaves[0]) + 1;

// The processor is asked once, and again after a restore, which may be on another machine: in a
// virtual machine the hypervisor answers, in some microseconds each time. Forked children inherit
// the answers.
constinit Cpuid known_cpu[kCpuAnswers] = {};
constinit uint32_t known_generation = ~0u;

void ask_cpu() {
  Cpuid* to = known_cpu;
  for (const auto& l : kCpuLeaves) {
    Cpuid c{l[0], l[1], 0, 0, 0, 0};
    __cpuid_count(c.leaf, c.subleaf, c.eax, c.ebx, c.ecx, c.edx);
    *to++ = c;
  }
  // XCR0 under a number cpuid does not have.
  Cpuid x{0xffff0000, 0, 0, 0, 0, 0};
  asm("xgetbv" : "=a"(x.eax), "=d"(x.edx) : "c"(0));
  *to = x;
  known_generation = library.generation;
}

void put_cpu(Records* r) {
  if (known_generation != library.generation) ask_cpu();
  r->begin(kRecCpu, kCpuAnswers);
  r->add(known_cpu, sizeof(known_cpu));
  r->end();
}

}  // namespace

void put_mark(Records* r, RecordType type) {
  r->begin(type);
  r->end();
}

void read_ids(const char* status, const char* field, uint32_t (&to)[4]) {
  const char* s = status_field(status, field);
  for (uint32_t& v : to) v = static_cast<uint32_t>(scan_dec(&s)), s += *s == '\t';
}

bool put_process_head(Capture* c, Records* r, bool device_present) {
  Told told;
  ask(&told);
  if (!put_head(c, told, r, device_present)) return false;
  put_mm(told.stat, r);
  put_future_locks(told, r);
  put_auxv(r);
  put_file(r, kRecCommand, "/proc/thread-self/cmdline");
  put_link(r, kRecExe, "/proc/thread-self/exe");
  if (!put_cwd(c, r)) return false;
  put_cpu(r);
  return true;
}

}  // namespace gpuckpt
