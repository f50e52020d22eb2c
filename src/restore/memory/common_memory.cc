#include "restore/memory/common_memory.h"

#include <asm/prctl.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "gpuckpt/wire.h"
#include "restore/descriptors/open_numbers.h"

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

uint64_t size_of(const AddressRange& r) { return r.end - r.start; }
void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool is_free(const Tree& tree, const AddressRange& r) {
  return std::all_of(tree.members.begin(), tree.members.end(), [&](const auto& m) {
    const auto& vmas = m->image.vmas;
    return std::none_of(vmas.begin(), vmas.end(), [&](const auto& v) {
      return v.first.start < r.end && r.start < v.first.end;
    });
  });
}

bool map_at(const CommonRegion& r, uint64_t at) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE |
                    (r.flags & kVmaNoReserve ? MAP_NORESERVE : 0);
  const uint64_t size = size_of(r.range);
  void* got = mmap(pointer(at), size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != pointer(at)) {  // (a kernel that does not know the flag)
    munmap(got, size);
    return false;
  }
  if (r.flags & kVmaHugePage) madvise(got, size, MADV_HUGEPAGE);
  if (r.flags & kVmaNoHugePage) madvise(got, size, MADV_NOHUGEPAGE);
  return true;
}

// Maps the region at the address that it has in the program, or else at one that no process of the
// program uses.
bool map_region(const Tree& tree, CommonRegion* r) {
  constexpr uint64_t kFirst = 96ull << 40, kLast = 112ull << 40, kStep = 16ull << 30;
  const uint64_t size = size_of(r->range);
  if (map_at(*r, r->at = r->range.start)) return true;
  for (uint64_t at = kFirst; at + size < kLast; at += kStep)
    if (is_free(tree, {at, at + size}) && map_at(*r, r->at = at)) return true;
  return false;
}

const CommonRegion* region_at(const CommonPages& common, uint64_t address) {
  auto r = std::upper_bound(
      common.regions.begin(), common.regions.end(), address,
      [](uint64_t a, const CommonRegion& region) { return a < region.range.start; });
  return r != common.regions.begin() && (--r)->range.end > address ? &*r : nullptr;
}

// Drops the range from the common pages: each process restores its part of it itself.
void forget(const AddressRange& r, CommonPages* common) {
  for (CommonOfMember& m : common->members)
    for (auto* ranges : {&m.inherited, &m.equal, &m.foreign, &m.source})
      *ranges = without(*ranges, {r});
}

// Reads the pages of the regions, from the parts of all processes: each is read once.
Status read_regions(const Tree& tree, unsigned threads) {
  const CommonPages& common = tree.common;
  // Pieces can lie across regions that touch; they are elsewhere then, or one behind the other.
  auto place_of = [&](uint64_t address, size_t length) {
    const CommonRegion* r = region_at(common, address);
    const bool whole = r && r->range.end - address >= length;
    return whole ? std::span(static_cast<uint8_t*>(pointer(r->at + (address - r->range.start))),
                             length)
                 : std::span<uint8_t>();
  };
  for (size_t i = 0; i < common.members.size(); ++i) {
    if (common.members[i].source.empty()) continue;
    Status s = tree.members[i]->reader->read_parts(
        wire::kSpaceHost, common.members[i].source, threads,
        [&](uint64_t address, std::span<const uint8_t> bytes) {
          while (!bytes.empty()) {
            const CommonRegion* r = region_at(common, address);
            if (!r) return false;
            const auto part = bytes.first(std::min<uint64_t>(bytes.size(), r->range.end - address));
            uint8_t* to = static_cast<uint8_t*>(pointer(r->at + (address - r->range.start)));
            if (to != part.data()) memcpy(to, part.data(), part.size());
            address += part.size();
            bytes = bytes.subspan(part.size());
          }
          return true;
        },
        place_of);
    if (!s.ok()) return s;
  }
  return Status::Ok();
}

// --- what execve does besides giving up memory
// -------------------------------------------------------------------

constexpr uint32_t kRseqSignature = 0x53053053;

// fork has inherited glibc's registration, whose memory is released. Its length must match, and the
// kernel is asked for it.
bool give_up_rseq() {
#ifdef SYS_rseq
  alignas(64) static char own[64];
  auto rseq = [](const void* area, unsigned bytes, int flags) {
    return syscall(SYS_rseq, area, bytes, flags, kRseqSignature);
  };
  if (const void* offset = dlsym(RTLD_DEFAULT, "__rseq_offset")) {
    const char* area = static_cast<const char*>(__builtin_thread_pointer()) +
                       *static_cast<const std::ptrdiff_t*>(offset);
    for (unsigned bytes = 32; bytes <= 1024; bytes += 4)
      if (rseq(area, bytes, 1 /* RSEQ_FLAG_UNREGISTER */) == 0) break;
  }
  if (rseq(own, 32, 0) == 0) return rseq(own, 32, 1) == 0;
  return errno == ENOSYS;
#else
  return true;
#endif
}

void close_on_exec() {
  each_open_number([](int fd) {
    if (fcntl(fd, F_GETFD) & FD_CLOEXEC) close(fd);
  });
}

// The launcher's segments, loaded anywhere: its code is position independent. Returns where it
// begins; null: it cannot be made (errno).
char* load_launcher(int fd, uint64_t* entry) {
  Elf64_Ehdr head;
  if (pread(fd, &head, sizeof(head), 0) != sizeof(head)) return nullptr;
  std::vector<Elf64_Phdr> parts(head.e_phnum);
  const ssize_t bytes = static_cast<ssize_t>(parts.size() * sizeof(Elf64_Phdr));
  if (pread(fd, parts.data(), static_cast<size_t>(bytes), static_cast<off_t>(head.e_phoff)) !=
      bytes)
    return nullptr;
  std::erase_if(parts, [](const Elf64_Phdr& p) { return p.p_type != PT_LOAD; });
  uint64_t size = 0;
  for (const Elf64_Phdr& p : parts) size = std::max(size, p.p_vaddr + p.p_memsz);
  void* to = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (to == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(to);
  for (const Elf64_Phdr& p : parts)
    if (pread(fd, start + p.p_vaddr, p.p_filesz, static_cast<off_t>(p.p_offset)) !=
        static_cast<ssize_t>(p.p_filesz))
      return nullptr;
  if (mprotect(to, size, PROT_READ | PROT_EXEC) != 0) return nullptr;
  *entry = head.e_entry;
  return start;
}

}  // namespace

Status load_common_memory(Tree* tree, unsigned threads) {
  CommonPages& common = tree->common;
  std::vector<CommonRegion> mapped;
  for (CommonRegion r : common.regions)
    if (map_region(*tree, &r))
      mapped.push_back(r);
    else
      forget(r.range, &common);
  common.regions = std::move(mapped);
  for (size_t i = 0; i < common.members.size(); ++i) {
    Memory& memory = tree->members[i]->memory;
    for (const AddressRange& range : common.members[i].inherited) {
      const CommonRegion& r = *region_at(common, range.start);
      memory.inherited.push_back({range, r.at + (range.start - r.range.start)});
    }
    memory.foreign = common.members[i].foreign;
  }
  return read_regions(*tree, threads);
}

void drop_common_memory(const Tree& tree) {
  for (const CommonRegion& r : tree.common.regions) munmap(pointer(r.at), size_of(r.range));
}

void keep_inherited_memory(const Tree& tree, size_t i) {
  const CommonPages& common = tree.common;
  for (const CommonRegion& r : common.regions) {
    std::vector<AddressRange> own;
    for (const Memory::Inherited& m : tree.members[i]->memory.inherited)
      own.push_back({m.at, m.at + size_of(m.range)});
    std::sort(own.begin(), own.end(),
              [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
    for (const AddressRange& rest : without({{r.at, r.at + size_of(r.range)}}, own))
      munmap(pointer(rest.start), size_of(rest));
  }
  for (const Memory::Inherited& m : tree.members[i]->memory.inherited)
    madvise(pointer(m.at), size_of(m.range), MADV_DONTFORK);
}

int launch_in_place(const Tree& tree, size_t i, int launcher, int plan) {
  constexpr size_t kStack = 64 << 10;
  uint64_t entry = 0;
  char* code = load_launcher(launcher, &entry);
  if (!code) return errno;
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return errno;
  for (const Memory::Inherited& m : tree.members[i]->memory.inherited)
    if (madvise(pointer(m.at), size_of(m.range), MADV_DOFORK) != 0) return errno;
  if (!give_up_rseq()) return EBUSY;
  // The stack as the kernel sets it up for a new program: its name, its arguments, no environment.
  struct Start {
    uint64_t count;
    const char *name, *plan, *end_of_arguments, *end_of_environment, *none;
    char number[16];
  };
  auto* s = reinterpret_cast<Start*>(static_cast<char*>(stack) + kStack - 256);
  *s = {2, "gpuckpt-launch", s->number, nullptr, nullptr, nullptr, {}};
  snprintf(s->number, sizeof(s->number), "%d", plan);
  stack_t no_stack{};
  no_stack.ss_flags = SS_DISABLE;
  sigaltstack(&no_stack, nullptr);
  struct {
    uint64_t handler, flags, restorer, mask;
  } const by_default{};
  for (int sig = 1; sig <= 64; ++sig)
    syscall(SYS_rt_sigaction, sig, &by_default, nullptr,
            8);  // with those that libc keeps for itself
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  close_on_exec();
  // From here on without libc: no shadow stack (ARCH_SHSTK_DISABLE), no thread pointer.
  constexpr long kShadowStackDisable = 0x5002, kShadowStack = 1;
  asm volatile(
      "syscall\n"
      "mov %[arch_prctl], %%eax\n"
      "mov %[set_fs], %%edi\n"
      "xor %%esi, %%esi\n"
      "syscall\n"
      "mov %[stack], %%rsp\n"
      "xor %%ebp, %%ebp\n"
      "jmp *%[entry]\n"
      :
      : "a"(SYS_arch_prctl), "D"(kShadowStackDisable),
        "S"(kShadowStack), [arch_prctl] "i"(SYS_arch_prctl), [set_fs] "i"(ARCH_SET_FS),
        [stack] "d"(s), [entry] "b"(code + entry)
      : "rcx", "r11", "memory");
  __builtin_unreachable();
}

}  // namespace gpuckpt::restore
