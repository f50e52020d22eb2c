// A control group of a test's own, made and entered by whom is allowed to.
#pragma once
#include "feature.h"

// The line of /proc/self/cgroup that ends in `name`, if the process is in that group.
static inline int in_control_group(const char* name) {
  char text[8192], end[256];
  const int fd = open("/proc/self/cgroup", O_RDONLY);
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  CHECK(fd >= 0 && n > 0 && close(fd) == 0);
  text[n] = 0;
  snprintf(end, sizeof(end), "/%s\n", name);
  return strstr(text, end) != NULL;
}

static inline int enter_folder(const char* folder) {
  char path[400];
  snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
  const int fd = open(path, O_WRONLY);
  const int entered = fd >= 0 && write(fd, "0", 1) == 1;
  if (fd >= 0) close(fd);
  return entered;
}

// Makes a group and moves the process to it. Returns the folder in which it was made; null: not
// here.
static inline const char* make_control_group(const char* name) {
  static const char* const places[] = {"/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified",
                                       "/sys/fs/cgroup"};
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); ++i) {
    char folder[300];
    snprintf(folder, sizeof(folder), "%s/%s", places[i], name);
    if (mkdir(folder, 0755) != 0) continue;
    if (enter_folder(folder)) return places[i];
    rmdir(folder);
  }
  return NULL;
}

static inline void leave_control_group(const char* place, const char* name) {
  char folder[300];
  snprintf(folder, sizeof(folder), "%s/%s", place, name);
  CHECK(enter_folder(place));
  for (int tries = 0; rmdir(folder) != 0; ++tries, sleep_ms(10))
    CHECK(errno == EBUSY && tries < 500);
}
