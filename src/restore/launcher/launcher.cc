// gpuckpt-launch: replaces its own address space by the image's and jumps into the library inside
// it.
//
// Freestanding, static, without relocations and without writable data, so that a copy of its code
// runs anywhere. Called by the supervisor as `gpuckpt-launch FD` with the plan in FD. Nothing
// of this file exists any more when the restored program runs. Where memory is inherited the driver
// copies it into the process and jumps to _start instead.

#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/syscall.h"
#include "restore/protocol/plan.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));

namespace gpuckpt::restore {
namespace {

struct Maps {
  uint64_t start[8], end[8];
  int count;
  uint64_t vdso_start, vdso_end;
};

void copy_bytes(void* to, const void* from, uint64_t n) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
void zero_bytes(void* to, uint64_t n) {
  asm volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(0) : "memory");
}

char* put(char* to, const char* s) {
  while (*s) *to++ = *s++;
  return to;
}
char* put_hex(char* to, uint64_t v) {
  for (int shift = 60; shift >= 0; shift -= 4)
    if (v >> shift || !shift) *to++ = "0123456789abcdef"[(v >> shift) & 15];
  return to;
}

[[noreturn]] void die(int report_fd, const char* what, uint64_t where, long error) {
  Report r;
  zero_bytes(&r, sizeof(r));
  r.type = kReportFailed;
  r.code = 12;
  char* s = put(r.text, what);
  s = put(s, " at 0x");
  s = put_hex(s, where);
  s = put(s, " (error 0x");
  s = put_hex(s, static_cast<uint64_t>(-error));
  put(s, ")");
  sys::call(SYS_sendto, report_fd, sys::ptr(&r), sizeof(r), 0x4000, 0, 0);
  sys::exit_group(125);
}

uint64_t hex(const char*& s) {
  uint64_t v = 0;
  for (;; ++s) {
    char c = *s;
    if (c >= '0' && c <= '9')
      v = v * 16 + static_cast<uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      v = v * 16 + static_cast<uint64_t>(c - 'a' + 10);
    else
      return v;
  }
}

// Finds where the kernel put this process's [vvar...] and [vdso].
void find_vdso(char* text, uint64_t room, Maps* m, int report) {
  int fd = sys::open("/proc/self/maps", O_RDONLY);
  uint64_t n = 0;
  for (long got; fd >= 0 && n + 1 < room && (got = sys::read(fd, text + n, room - 1 - n)) > 0;)
    n += static_cast<uint64_t>(got);
  if (fd >= 0) sys::close(fd);
  text[n] = 0;
  m->count = 0;
  m->vdso_start = 0;
  for (const char* s = text; *s;) {
    uint64_t start = hex(s);
    ++s;
    uint64_t end = hex(s);
    while (*s && *s != '\n' && *s != '[') ++s;
    if (s[0] == '[' && s[1] == 'v' && (s[2] == 'v' || s[2] == 'd') && m->count < 8) {
      if (s[2] == 'd') m->vdso_start = start, m->vdso_end = end;
      m->start[m->count] = start;
      m->end[m->count++] = end;
    }
    while (*s && *s != '\n') ++s;
    if (*s) ++s;
  }
  if (!m->vdso_start) die(report, "the kernel gave this process no vdso", 0, 0);
}

void fill(const Plan* p, const PlanFill& f) {
  if (f.offset == kZeros) {
    zero_bytes(reinterpret_cast<void*>(f.address), f.length);
    return;
  }
  for (uint64_t done = 0; done < f.length;) {
    uint64_t piece = f.length - done > (64u << 20) ? (64u << 20) : f.length - done;
    long n =
        sys::pread(p->pages_fd, reinterpret_cast<void*>(f.address + done), piece, f.offset + done);
    if (n <= 0) die(p->report_fd, "cannot fill memory", f.address + done, n);
    done += static_cast<uint64_t>(n);
  }
  if (p->flags & kKeepPages) return;
  // The copy is in place: release the source's memory.
  sys::call(SYS_fallocate, p->pages_fd, 3 /* PUNCH_HOLE|KEEP_SIZE */,
            static_cast<long>(f.offset & ~4095ull), static_cast<long>(f.length & ~4095ull));
}

// A userfaultfd of this process, or an error. `user_only`: it does not cover the kernel's own
// accesses, for which not every user has the right; that is enough while no program runs in the
// process.
long open_userfaultfd(bool* user_only) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK, kUserModeOnly = 1;
  *user_only = false;
  long fd = sys::call(SYS_userfaultfd, kFlags);
  if (!sys::failed(fd)) return fd;
  const int device = sys::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device >= 0) {
    fd = sys::call(SYS_ioctl, device, 0xaa00 /* USERFAULTFD_IOC_NEW */, kFlags);
    sys::close(device);
    if (!sys::failed(fd)) return fd;
  }
  *user_only = true;
  return sys::call(SYS_userfaultfd, kFlags | kUserModeOnly);
}

// Reports that everything is mapped, and sends `fd` unless that is an error.
void say_mapped(const Plan* p, long fd, bool user_only) {
  Report r;
  zero_bytes(&r, sizeof(r));
  r.type = kReportMapped;
  r.code = sys::failed(fd) ? static_cast<int>(-fd) : 0;
  r.user_only = user_only;
  iovec io{&r, sizeof(r)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr m;
  zero_bytes(&m, sizeof(m));
  m.msg_iov = &io, m.msg_iovlen = 1;
  if (!sys::failed(fd)) {
    m.msg_control = control, m.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    *reinterpret_cast<int*>(CMSG_DATA(c)) = static_cast<int>(fd);
  }
  sys::call(SYS_sendmsg, p->report_fd, sys::ptr(&m), MSG_NOSIGNAL);
}

// The supervisor decompresses from several threads at once directly into this process. False:
// it has no permission, and uses the pages memfd instead.
bool filled_by_supervisor(const Plan* p) {
  Report r;
  bool user_only;
  const long uffd = open_userfaultfd(&user_only);
  say_mapped(p, uffd, user_only);
  if (!sys::failed(uffd)) sys::close(static_cast<int>(uffd));
  long n = sys::call(SYS_recvfrom, p->report_fd, sys::ptr(&r), sizeof(r), 0, 0, 0);
  if (n != static_cast<long>(sizeof(r)) || r.type != kReportFilled) sys::exit_group(125);
  return r.code == 0;
}

void advise(const PlanMap& m) {
  struct {
    uint32_t flag;
    int advice;
  } const table[] = {{process::kVmaDontFork, 10},  {process::kVmaWipeOnFork, 18},
                     {process::kVmaHugePage, 14},  {process::kVmaNoHugePage, 15},
                     {process::kVmaDontDump, 16},  {process::kVmaMergeable, 12},
                     {process::kVmaSequential, 2}, {process::kVmaRandom, 1}};
  for (const auto& t : table)
    if (m.advice & t.flag)
      sys::call(SYS_madvise, static_cast<long>(m.start), static_cast<long>(m.end - m.start),
                t.advice);
}

// Attaches a System V segment with the rights that the program had, as far as they are allowed.
long attach(const PlanMap& m) {
  constexpr long kReadOnly = 010000;  // SHM_RDONLY
  const long id = static_cast<long>(m.segment) - 1;
  const bool reads = m.advice & process::kVmaNeverWrite;
  long r = sys::call(SYS_shmat, id, static_cast<long>(m.start), reads ? kReadOnly : 0);
  if (r == -13 /* EACCES */) r = sys::call(SYS_shmat, id, static_cast<long>(m.start), kReadOnly);
  if (!sys::failed(r) && m.prot != 3)
    sys::call(SYS_mprotect, static_cast<long>(m.start), static_cast<long>(m.end - m.start), m.prot);
  return r;
}

// Restores what the program changed of its vdso: a few bytes and its protection.
void keep_changes_of_vdso(const Plan* p, const char* bytes) {
  const long at = static_cast<long>(p->vdso_at);
  const uint64_t length = p->vdso.vdso_end - p->vdso.vdso_start;
  long r = 0;
  if (p->flags & kPatchVdso) {
    r = sys::call(SYS_mprotect, at, static_cast<long>(length), PROT_READ | PROT_WRITE);
    if (!sys::failed(r)) copy_bytes(reinterpret_cast<char*>(at), bytes, p->jumps_bytes);
  }
  if (!sys::failed(r) && (p->flags & kPatchVdso || p->vdso.prot != (PROT_READ | PROT_EXEC)))
    r = sys::call(SYS_mprotect, at, static_cast<long>(length), p->vdso.prot);
  if (sys::failed(r)) die(p->report_fd, "cannot change the vdso as the program did", p->vdso_at, r);
}

// Unmaps everything but the gap and what the program inherits.
void clear_address_space(const Plan* p, uint64_t gap, uint64_t gap_end) {
  constexpr uint64_t kTop = (1ull << 47) - 4096;
  const auto* kept =
      reinterpret_cast<const process::Span*>(reinterpret_cast<const char*>(p) + p->kept);
  uint64_t at = 0;
  bool gap_left = true;
  const auto keep = [&](uint64_t start, uint64_t end) {
    if (start > at) sys::munmap(at, start - at);
    at = end;
  };
  for (uint64_t i = 0; i < p->kept_count; ++i) {
    if (gap_left && gap < kept[i].start) keep(gap, gap_end), gap_left = false;
    keep(kept[i].start, kept[i].end);
  }
  if (gap_left) keep(gap, gap_end);
  keep(kTop, kTop);
}

// Moves inherited mappings to their addresses, and removes pages that are not the program's.
void place_inherited(const Plan* p, const PlanMap* maps) {
  for (uint64_t i = 0; i < p->map_count; ++i) {
    const PlanMap& m = maps[i];
    if (!m.inherited || m.inherited == m.start) continue;
    const long bytes = static_cast<long>(m.end - m.start);
    const long r = sys::call(SYS_mremap, static_cast<long>(m.inherited), bytes, bytes,
                             3 /* MAYMOVE|FIXED */, static_cast<long>(m.start));
    if (r != static_cast<long>(m.start)) die(p->report_fd, "cannot move memory", m.start, r);
  }
  const auto* foreign =
      reinterpret_cast<const process::Span*>(reinterpret_cast<const char*>(p) + p->foreign);
  for (uint64_t i = 0; i < p->foreign_count; ++i) {
    const long r = sys::call(SYS_madvise, static_cast<long>(foreign[i].start),
                             static_cast<long>(foreign[i].end - foreign[i].start), MADV_DONTNEED);
    if (sys::failed(r)) die(p->report_fd, "cannot discard memory", foreign[i].start, r);
  }
}

// Moves this kernel's vdso, with the data pages before it, into the staging part of the gap.
void stage_vdso(Plan* p, const Maps& own, uint64_t staging) {
  const uint64_t base = own.start[0];
  for (int i = 0; i < own.count; ++i) {
    uint64_t to = staging + (own.start[i] - base);
    if (own.end[i] - base > kGapVdso) die(p->report_fd, "the vdso is too large", base, 0);
    long r = sys::call(
        SYS_mremap, static_cast<long>(own.start[i]), static_cast<long>(own.end[i] - own.start[i]),
        static_cast<long>(own.end[i] - own.start[i]), 3 /* MAYMOVE|FIXED */, static_cast<long>(to));
    if (sys::failed(r)) die(p->report_fd, "cannot move the vdso", own.start[i], r);
  }
}

// Moves the vdso from the staging part to where the plan wants it.
void place_vdso(Plan* p, const Maps& own, uint64_t staging) {
  for (int i = 0; i < own.count; ++i) {
    const uint64_t from = staging + (own.start[i] - own.start[0]),
                   bytes = own.end[i] - own.start[i];
    if (!p->vdso_at || (p->flags & kNoVvar && own.start[i] != own.vdso_start)) {
      // The program has unmapped its vdso, and may read its mappings before the gap is gone.
      sys::mmap(from, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
      continue;
    }
    uint64_t to = p->vdso_at - (own.vdso_start - own.start[i]);
    long r = sys::call(SYS_mremap, static_cast<long>(from), static_cast<long>(bytes),
                       static_cast<long>(bytes), 3, static_cast<long>(to));
    if (sys::failed(r)) die(p->report_fd, "cannot place the vdso", to, r);
  }
}

// Restores the contents of the program's vdso: this kernel's with the program's changes, or jumps
// to this kernel's functions.
void restore_vdso_contents(Plan* p) {
  const char* plan = reinterpret_cast<const char*>(p);
  if (p->vdso_at == p->vdso.vdso_start && p->vdso_at) {
    keep_changes_of_vdso(p, plan + p->jumps);
    return;
  }
  if (!p->jumps_bytes) return;
  const long at = static_cast<long>(p->vdso.vdso_start);
  const long bytes = static_cast<long>((p->jumps_bytes + 4095) & ~4095ull);
  long r = sys::mmap(p->vdso.vdso_start, static_cast<uint64_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE);
  if (r != at) die(p->report_fd, "cannot map what was the vdso", p->vdso.vdso_start, r);
  copy_bytes(reinterpret_cast<char*>(at), plan + p->jumps, p->jumps_bytes);
  r = sys::call(SYS_mprotect, at, bytes, PROT_READ | PROT_EXEC);
  if (sys::failed(r)) die(p->report_fd, "cannot protect what was the vdso", p->vdso.vdso_start, r);
}

// Makes all mappings with their contents and their protection.
void map_memory(Plan* p) {
  char* plan = reinterpret_cast<char*>(p);
  const PlanMap* maps = reinterpret_cast<const PlanMap*>(plan + p->maps);
  place_inherited(p, maps);
  for (uint64_t i = 0; i < p->map_count; ++i) {
    const PlanMap& m = maps[i];
    if (m.inherited) {
      advise(m);
      continue;
    }
    int prot = static_cast<int>(m.filled ? m.prot | PROT_READ | PROT_WRITE : m.prot);
    long r = m.segment ? attach(m)
                       : sys::mmap(m.start, m.end - m.start, prot,
                                   static_cast<int>(m.flags) | MAP_FIXED_NOREPLACE, m.fd, m.offset);
    if (r != static_cast<long>(m.start)) die(p->report_fd, "cannot map memory", m.start, r);
    advise(m);
  }
  const bool filled = (p->flags & kFillBySupervisor) && filled_by_supervisor(p);
  const PlanFill* fills = reinterpret_cast<const PlanFill*>(plan + p->fills);
  for (uint64_t i = 0; i < p->fill_count; ++i)
    if (!filled || fills[i].offset == kZeros) fill(p, fills[i]);
  for (uint64_t i = 0; i < p->map_count; ++i) {
    const PlanMap& m = maps[i];
    const bool as_it_is = m.inherited ? m.prot == (PROT_READ | PROT_WRITE) : (m.prot & 3) == 3;
    if ((m.filled || m.inherited) && !as_it_is)
      sys::call(SYS_mprotect, static_cast<long>(m.start), static_cast<long>(m.end - m.start),
                m.prot);
  }
}

// Tells the kernel where code, heap, stack, arguments and the executable are.
void set_memory_layout(Plan* p) {
  struct {
    uint64_t field[11];
    uint64_t auxv;
    uint32_t auxv_size;
    uint32_t exe_fd;
  } mm;
  zero_bytes(&mm, sizeof(mm));
  // struct prctl_mm_map's order.
  mm.field[0] = p->mm.start_code, mm.field[1] = p->mm.end_code, mm.field[2] = p->mm.start_data;
  mm.field[3] = p->mm.end_data, mm.field[4] = p->mm.start_brk, mm.field[5] = p->mm.brk;
  mm.field[6] = p->mm.start_stack, mm.field[7] = p->mm.arg_start, mm.field[8] = p->mm.arg_end;
  mm.field[9] = p->mm.env_start, mm.field[10] = p->mm.env_end;
  mm.auxv = reinterpret_cast<uint64_t>(p) + p->auxv;
  mm.auxv_size = static_cast<uint32_t>(p->auxv_bytes);
  mm.exe_fd = static_cast<uint32_t>(p->exe_fd);
  long r = p->exe_fd >= 0
               ? sys::call(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, sys::ptr(&mm), sizeof(mm))
               : -1;
  if (sys::failed(r)) {
    mm.exe_fd = ~0u;  // /proc/PID/exe stays ours
    r = sys::call(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, sys::ptr(&mm), sizeof(mm));
  }
  if (sys::failed(r) && r != -22)
    die(p->report_fd, "the kernel refuses the image's memory layout", p->mm.start_brk, r);
}

// Calls `function`, which never returns, with the plan on another stack.
[[noreturn, gnu::always_inline]] inline void call_on_stack(uint64_t stack, Plan* p,
                                                           uint64_t function) {
  // In registers that the instructions do not write first: the compiler may choose any for "r", rbp
  // among them.
  asm volatile(
      "mov %0, %%rsp\n"
      "xor %%ebp, %%ebp\n"
      "call *%2\n"
      "hlt\n"
      :
      : "d"(stack), "D"(p), "a"(function)
      : "memory");
  __builtin_unreachable();
}

// Runs in the gap, on the gap's stack.
[[noreturn]] void replace(Plan* p) {
  const uint64_t gap = p->chosen_gap;
  const uint64_t staging = gap + kGapCode + kGapStack;
  char* text = reinterpret_cast<char*>(staging + kGapVdso);
  Maps own;
  find_vdso(text, kGapText, &own, p->report_fd);
  stage_vdso(p, own, staging);
  clear_address_space(p, gap, gap + p->gap_bytes);
  place_vdso(p, own, staging);
  restore_vdso_contents(p);
  map_memory(p);
  set_memory_layout(p);
  call_on_stack(p->entry_stack, p, p->entry);
}

[[noreturn]] void launch(uint64_t* stack) {
  const char* s = stack[0] >= 2 ? reinterpret_cast<const char*>(stack[2]) : "";
  int fd = 0;
  if (*s < '0' || *s > '9') {
    constexpr char text[] = "gpuckpt-launch is started by `gpuckpt restore`\n";
    sys::write(2, text, sizeof(text) - 1);
    sys::exit_group(2);
  }
  while (*s >= '0' && *s <= '9') fd = fd * 10 + (*s++ - '0');
  Plan head;
  if (sys::pread(fd, &head, sizeof(head), 0) != sizeof(head) || head.magic != kPlanMagic ||
      head.version != kPlanVersion)
    sys::exit_group(125);
  uint64_t gap = 0;
  for (int i = 0; i < kGaps && !gap; ++i)
    if (head.gap[i] && sys::mmap(head.gap[i], head.gap_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE) ==
                           static_cast<long>(head.gap[i]))
      gap = head.gap[i];
  if (!gap) die(head.report_fd, "no place for the launcher", head.gap[0], 0);
  char* code = reinterpret_cast<char*>(gap);
  uint64_t code_bytes = static_cast<uint64_t>(_end - __ehdr_start);
  copy_bytes(code, __ehdr_start, code_bytes);
  sys::call(SYS_mprotect, static_cast<long>(gap), kGapCode, PROT_READ | PROT_EXEC);
  char* plan = reinterpret_cast<char*>(gap + kGapCode + kGapStack + kGapVdso + kGapText);
  for (uint64_t at = 0; at < head.bytes;) {
    long n = sys::pread(fd, plan + at, head.bytes - at, at);
    if (n <= 0) die(head.report_fd, "cannot read the plan", at, n);
    at += static_cast<uint64_t>(n);
  }
  Plan* p = reinterpret_cast<Plan*>(plan);
  p->chosen_gap = gap;
  uint64_t function =
      gap + (reinterpret_cast<uint64_t>(&replace) - reinterpret_cast<uint64_t>(__ehdr_start));
  call_on_stack(gap + kGapCode + kGapStack, p, function);
}

}  // namespace
extern "C" [[noreturn]] void gpuckpt_launch(uint64_t* stack) { launch(stack); }
}  // namespace gpuckpt::restore

asm(R"(
.globl _start
_start:
    xor %ebp, %ebp
    mov %rsp, %rdi
    and $-16, %rsp
    call gpuckpt_launch
    hlt
)");
