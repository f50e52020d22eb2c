// Every flag that mmap, mlock, madvise, prctl and mseal can leave on a mapping: what /proc/self/smaps
// says of each (VmFlags, how much is locked, its name) is what it was. Of private and shared memory, of a
// private and a shared file.
#include <sys/mman.h>
#include <sys/prctl.h>
#include "feature.h"
enum { kBytes = 2 << 20, kKinds = 4, kMost = 160 };
enum { kAdvise, kLock, kName, kSeal, kProtect };
static const struct {
  const char* what;
  int how, value, kinds;  // of which kinds: bit 0 private, 1 shared, 2 private file, 3 shared file
} change[] = {
    {"nothing", kAdvise, MADV_NORMAL, 15},
    {"random", kAdvise, MADV_RANDOM, 15},
    {"sequential", kAdvise, MADV_SEQUENTIAL, 15},
    {"not for children", kAdvise, MADV_DONTFORK, 15},
    {"wiped for children", kAdvise, MADV_WIPEONFORK, 1},
    {"huge", kAdvise, MADV_HUGEPAGE, 3},
    {"not huge", kAdvise, MADV_NOHUGEPAGE, 15},
    {"not dumped", kAdvise, MADV_DONTDUMP, 15},
    {"mergeable", kAdvise, MADV_MERGEABLE, 5},
    {"cold", kAdvise, MADV_COLD, 15},
    {"locked", kLock, 0, 7},
    {"locked when touched", kLock, MLOCK_ONFAULT, 7},
    {"named", kName, 0, 3},
    {"sealed", kSeal, 0, 15},
    {"not accessible", kProtect, PROT_NONE, 15},
    {"to be read", kProtect, PROT_READ, 15},
    {"to be executed", kProtect, PROT_READ | PROT_EXEC, 7},
};
static const struct {
  const char* what;
  int flags;
} made[] = {{"no reserve", MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE},
            {"shared, no reserve", MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE},
            {"grows down", MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN},
            {"stack", MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK},
            {"populated", MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE}};
static struct {
  char* at;
  char what[64], said[512];
} mapping[kMost];
static int count;

// What smaps says of the mapping that begins at `at`.
static void attributes(char* at, char* to, size_t room) {
  FILE* f = fopen("/proc/self/smaps", "r");
  char line[512], begin[32], name[256] = "";
  int inside = 0, locked = 0, when_touched = 0;
  CHECK(f);
  sprintf(begin, "%lx-", (unsigned long)at);
  while (fgets(line, sizeof(line), f)) {
    if (strchr(line, '-') && strchr(line, ':') && line[0] != 'V' && strstr(line, "kB") == NULL && line[0] > '/') {
      if (inside) break;
      inside = strncmp(line, begin, strlen(begin)) == 0;
      char* end = strchr(line, ' ');
      if (inside && strchr(end, '[')) snprintf(name, sizeof(name), "%s", strchr(end, '['));
      if (inside) snprintf(to, room, "%.4s", end + 1);
    } else if (inside && sscanf(line, "Locked: %d kB", &locked) == 1) {
    } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
      snprintf(to + strlen(to), room - strlen(to), " name %s", name);
      for (char* flag = strtok(line + 8, " \n"); flag; flag = strtok(NULL, " \n")) {
        when_touched |= strcmp(flag, "lf") == 0;
        // The library's own tracking, and accounting, which tells whether a page was ever written.
        if (strcmp(flag, "uw") && strcmp(flag, "sd") && strcmp(flag, "ac"))
          snprintf(to + strlen(to), room - strlen(to), " %s", flag);
      }
      // The restored process has not touched the pages of shared memory again.
      if (!when_touched) snprintf(to + strlen(to), room - strlen(to), " locked %d", locked != 0);
      break;
    }
  }
  fclose(f);
  CHECK(inside);
}

// A mapping with a page beside it that keeps it apart from its neighbours.
static char* map(int flags, int fd) {
  char* p = mmap(NULL, kBytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  p = mmap(p + 4096, kBytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

static void note(char* at, const char* what, const char* kind) {
  CHECK(count < kMost);
  mapping[count].at = at;
  snprintf(mapping[count].what, sizeof(mapping[count].what), "%s (%s)", what, kind);
  attributes(at, mapping[count].said, sizeof(mapping[count].said));
  ++count;
}

static int do_change(char* p, int how, int value) {
  switch (how) {
    case kAdvise:
      return madvise(p, kBytes, value);
    case kLock:
      return syscall(SYS_mlock2, p, 8192, value);
    case kName:
      return prctl(0x53564d41 /* PR_SET_VMA */, 0, p, kBytes, "a name");
    case kSeal:
      return (int)syscall(462 /* mseal */, p, kBytes, 0);
    default:
      return mprotect(p, kBytes, value);
  }
}

int main(void) {
  static const char* const kind[kKinds] = {"private", "shared", "private file", "shared file"};
  int file = open("mapped", O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(file >= 0 && ftruncate(file, kBytes) == 0);
  const int flags[kKinds] = {MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED};
  for (size_t i = 0; i < sizeof(change) / sizeof(change[0]); ++i)
    for (int k = 0; k < kKinds; ++k) {
      if (!(change[i].kinds >> k & 1)) continue;
      char* p = map(flags[k], k < 2 ? -1 : file);
      if (k != 3) strcpy(p, change[i].what);
      // Some kernels do not have it (ENOSYS, EINVAL), some users may lock little.
      if (do_change(p, change[i].how, change[i].value) == 0) note(p, change[i].what, kind[k]);
    }
  for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); ++i) {
    char* p = map(made[i].flags, -1);
    strcpy(p, made[i].what);
    note(p, made[i].what, "as made");
  }
  CHECK(count > 40);
  ready_and_wait();
  char now[512];
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    attributes(mapping[i].at, now, sizeof(now));
    if (strcmp(now, mapping[i].said) == 0) continue;
    dprintf(1, "%s: %s -> %s\n", mapping[i].what, mapping[i].said, now);
    ++wrong;
  }
  CHECK(!wrong);
  return survived();
}
