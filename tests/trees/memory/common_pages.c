// Pages that fork left in common are in common again: a parent with 200 MiB and five children that each wrote a few of
// them need about as much memory as before. Children unmapped, protected, discarded, moved and replaced some, two have more
// in common by themselves, and one runs another program. Each checks every byte, then writes a third of them, which no other process sees.
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "tree.h"
enum { kMiB = 1 << 20, kPage = 4096, kPages = 200 * kMiB / kPage, kMore = 32 * kMiB / kPage, kProcesses = 7, kOwn = 20 };
// What a process has at a page.
enum { kOriginal, kWritten, kZero, kGone, kFile, kMoved };
static struct {
  _Atomic int ready, back, measured, checked, written, failed;
  _Atomic unsigned turn;
}* shared;
static uint32_t *pages, *more, *moved, *dont_fork, *wiped;
static unsigned char state[kPages];
static char before_maps[1 << 16];
static int self, has_more;

static uint32_t word(uint32_t who, uint32_t page, uint32_t i) { return (who * 2654435761u) ^ (page * 40503u) ^ i * 2246822519u; }
static void fill(uint32_t* at, uint32_t who, uint32_t page) {
  for (uint32_t i = 0; i < kPage / 4; ++i) at[i] = word(who, page, i);
}
static int has(const uint32_t* at, uint32_t who, uint32_t page) {
  for (uint32_t i = 0; i < kPage / 4; ++i)
    if (at[i] != word(who, page, i)) return 0;
  return 1;
}
static int is_zero(const uint32_t* at) {
  for (uint32_t i = 0; i < kPage / 4; ++i)
    if (at[i]) return 0;
  return 1;
}
static uint32_t* page_at(uint32_t page) { return pages + (size_t)page * (kPage / 4); }
static void* map(size_t bytes) {
  void* m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED);
  return m;
}
static void mark(int what, uint32_t first, uint32_t count) { memset(state + first, what, count); }

static long pss_kib(void) {
  char line[256];
  long kib = -1;
  FILE* f = fopen("/proc/self/smaps_rollup", "re");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "Pss: %ld", &kib);
  if (f) fclose(f);
  return kib;
}
// What of /proc/self/maps is of the large mapping.
static void read_maps(char* to, size_t room) {
  char line[512];
  size_t n = 0;
  FILE* f = fopen("/proc/self/maps", "re");
  CHECK(f);
  while (fgets(line, sizeof line, f)) {
    unsigned long start, end;
    char rights[8];
    CHECK(sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3);
    if (start < (uintptr_t)pages + (size_t)kPages * kPage && end > (uintptr_t)pages && n + 64 < room)
      n += (size_t)sprintf(to + n, "%lx-%lx %s\n", start, end, rights);
  }
  fclose(f);
}

// What else the kernel tells of a program, which execve would have set.
static size_t read_identity(char* to, size_t room) {
  size_t n = 0;
  const char* const files[] = {"/proc/self/cmdline", "/proc/self/environ", "/proc/self/comm", "/proc/self/auxv"};
  const ssize_t link = readlink("/proc/self/exe", to, room);
  CHECK(link > 0);
  n = (size_t)link;
  for (int i = 0; i < 4; ++i) {
    const int fd = open(files[i], O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    CHECK(fd >= 0);
    while (n < room && (got = read(fd, to + n, room - n)) > 0) n += (size_t)got;
    CHECK(got == 0);
    close(fd);
  }
  return n;
}

// (In a hole there may be something of gpuckpt's.)
static int has_lines(const char* all, const char* lines) {
  char line[512];
  for (const char* at = lines; *at; at += strlen(line)) {
    snprintf(line, sizeof line, "%.*s", (int)(strchr(at, '\n') + 1 - at), at);
    if (!strstr(all, line)) return 0;
  }
  return 1;
}

static void check(void) {
  for (uint32_t p = 0; p < kPages; ++p) {
    const uint32_t* at = page_at(p);
    int ok = 1;
    if (state[p] == kOriginal) ok = has(at, 100, p);
    if (state[p] == kWritten) ok = has(at, (uint32_t)self, p);
    if (state[p] == kZero) ok = is_zero(at);
    if (state[p] == kFile) ok = has(at, 200, p);
    if (!ok) dprintf(1, "process %d: page %u (%d) is wrong\n", self, p, state[p]), ++shared->failed;
    if (!ok) return;
  }
  for (uint32_t p = 0; has_more && p < kMore; ++p)
    if (!has(more + (size_t)p * (kPage / 4), p % 64 == (uint32_t)self ? (uint32_t)self : 300, p))
      dprintf(1, "process %d: page %u of its more is wrong\n", self, p), ++shared->failed;
  for (uint32_t p = 0; moved && p < 256; ++p)
    if (!has(moved + (size_t)p * (kPage / 4), 100, 4096 + p)) dprintf(1, "process %d: moved page %u\n", self, p), ++shared->failed;
  if (self == 0)
    for (uint32_t p = 0; p < 512; ++p)
      if (!has(dont_fork + (size_t)p * (kPage / 4), 400, p) || !has(wiped + (size_t)p * (kPage / 4), 500, p))
        dprintf(1, "page %u that children do not get\n", p), ++shared->failed;
  for (uint32_t p = 0; self && p < 512; ++p)
    if (!is_zero(wiped + (size_t)p * (kPage / 4))) dprintf(1, "process %d: page %u is not wiped\n", self, p), ++shared->failed;
}

static void await(_Atomic int* count) {
  ++*count;
  while (*count < kProcesses && !shared->failed) sleep_ms(2);
}

// From `ready` on: it is measured, stopped, goes on, and looks at itself.
static void live(void) {
  static char after_maps[sizeof before_maps], identity[1 << 15], identity_after[1 << 15];
  read_maps(before_maps, sizeof before_maps);
  const size_t known = read_identity(identity, sizeof identity);
  const pid_t pid = getpid();
  await(&shared->ready);
  const long before = pss_kib();
  await(&shared->measured);
  if (self == 0)
    ready_and_wait();
  else
    while (access("go_on", F_OK) != 0) sleep_ms(5);
  await(&shared->back);
  const long after = pss_kib();
  if (after > before + before / 4) dprintf(1, "process %d takes %ld KiB, and took %ld\n", self, after, before), ++shared->failed;
  read_maps(after_maps, sizeof after_maps);
  if (!has_lines(after_maps, before_maps))
    dprintf(1, "process %d: mappings\n%sare now\n%s", self, before_maps, after_maps), ++shared->failed;
  if (read_identity(identity_after, sizeof identity_after) != known || memcmp(identity, identity_after, known) != 0)
    dprintf(1, "process %d has another file, name or arguments\n", self), ++shared->failed;
  if (getpid() != pid) ++shared->failed;
  await(&shared->checked);
  // One after the other looks at everything and then writes a third of it.
  while (shared->turn != (unsigned)self && !shared->failed) sleep_ms(2);
  check();
  for (uint32_t p = 0; p < kPages; p += 3)
    if ((state[p] == kOriginal || state[p] == kWritten || state[p] == kZero) && !(self == 2 && p >= 2048 && p < 4096))
      fill(page_at(p), (uint32_t)self, p), state[p] = kWritten;
  ++shared->turn;
  await(&shared->written);
  check();
  CHECK(!shared->failed);
}

// As a program of its own: shares pages with no other process, but some are equal by chance.
static int other_program(const char* fd) {
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
  CHECK(shared != MAP_FAILED);
  uint32_t* own = map(4 * kMiB);
  for (uint32_t p = 0; p < 1024; ++p) fill(own + p * 1024, 600, p);
  CHECK(chdir("/proc") == 0);
  prctl(PR_SET_NAME, "other");
  await(&shared->ready);
  await(&shared->measured);
  while (!shared->back) sleep_ms(5);
  await(&shared->back);
  char name[16], folder[64];
  CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "other") && getcwd(folder, sizeof folder) && !strcmp(folder, "/proc"));
  for (uint32_t p = 0; p < 1024; ++p) CHECK(has(own + p * 1024, 600, p));
  await(&shared->checked);
  await(&shared->written);
  return 50;
}

static void write_own(void) {
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t p = 8192 + i * 977 + (uint32_t)self * 31;
    fill(page_at(p), (uint32_t)self, p);
    state[p] = kWritten;
  }
}

static pid_t bear(int number) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) self = number;
  return child;
}

int main(int argc, char** argv) {
  if (argc > 1) return other_program(argv[1]);
  const int fd = memfd_create("shared", 0);
  CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(shared != MAP_FAILED);
  pages = map((size_t)kPages * kPage);
  for (uint32_t p = 0; p < kPages; ++p) fill(page_at(p), 100, p);
  dont_fork = map(2 * kMiB), wiped = map(2 * kMiB);
  for (uint32_t p = 0; p < 512; ++p) fill(dont_fork + p * 1024, 400, p), fill(wiped + p * 1024, 500, p);
  CHECK(madvise(dont_fork, 2 * kMiB, MADV_DONTFORK) == 0 && madvise(wiped, 2 * kMiB, MADV_WIPEONFORK) == 0);
  pid_t children[6];
  // Two of one branch: what the child wrote before it had a child is theirs.
  if ((children[0] = bear(1)) == 0) {
    more = map((size_t)kMore * kPage), has_more = 1;
    for (uint32_t p = 0; p < kMore; ++p) fill(more + (size_t)p * 1024, 300, p);
    const pid_t grandchild = bear(5);
    for (uint32_t p = (uint32_t)self; p < kMore; p += 64) fill(more + (size_t)p * 1024, (uint32_t)self, p);
    write_own();
    live();
    _exit(grandchild && wait_status(grandchild) != 50 ? 1 : 50);
  }
  // One with holes, and other things at the same place.
  if ((children[1] = bear(2)) == 0) {
    write_own();
    CHECK(munmap(page_at(0), 1024 * kPage) == 0);
    mark(kGone, 0, 1024);
    CHECK(mprotect(page_at(2048), 1024 * kPage, PROT_READ) == 0 && mprotect(page_at(3072), 1024 * kPage, PROT_NONE) == 0);
    mark(kGone, 3072, 1024);
    uint32_t* at = mmap(page_at(40000), 512 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(at == page_at(40000));
    for (uint32_t p = 40000; p < 40512; ++p) fill(page_at(p), 200, p);
    mark(kFile, 40000, 512);
    CHECK(mmap(page_at(41000), 512 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page_at(41000));
    mark(kZero, 41000, 512);
    live();
    _exit(50);
  }
  // One that discarded some, moved some, locked some.
  if ((children[2] = bear(3)) == 0) {
    write_own();
    CHECK(madvise(page_at(1024), 2048 * kPage, MADV_DONTNEED) == 0);
    mark(kZero, 1024, 2048);
    moved = mremap(page_at(4096), 256 * kPage, 256 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, map(256 * kPage));
    CHECK(moved != MAP_FAILED);
    mark(kGone, 4096, 256);
    CHECK(mlock(page_at(5000), 4 * kPage) == 0 && madvise(page_at(6000), 512 * kPage, MADV_NOHUGEPAGE) == 0);
    live();
    _exit(50);
  }
  if ((children[3] = bear(4)) == 0) {
    write_own();
    live();
    _exit(50);
  }
  if ((children[4] = bear(6)) == 0) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", argv[0], number, (char*)NULL);
    _exit(127);
  }
  live();
  for (int i = 0; i < 5; ++i) CHECK(wait_status(children[i]) == 50);
  return survived();
}
