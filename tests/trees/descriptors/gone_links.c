// Symbolic links that are held by O_PATH, removed and with a folder that is gone, in a parent and in its child: one that both
// have from one opening, and one of each.
#include "tree.h"

static int common, own;

static int of_link(const char* folder, const char* target) {
  char name[64];
  snprintf(name, sizeof(name), "%s/link", folder);
  CHECK(mkdir(folder, 0700) == 0 && symlink(target, name) == 0);
  const int fd = open(name, O_PATH | O_NOFOLLOW);
  CHECK(fd >= 0 && unlink(name) == 0 && rmdir(folder) == 0);
  return fd;
}

static int leads_to(int fd, const char* target) {
  char text[32] = "";
  return readlinkat(fd, "", text, sizeof(text) - 1) == (ssize_t)strlen(target) && strcmp(text, target) == 0;
}

static int check(void) { return leads_to(common, "of both") && leads_to(own, "of the child") ? 50 : 1; }

int main(void) {
  common = of_link("first", "of both");
  own = of_link("second", "of the child");
  const pid_t child = fork_waiting(check);
  CHECK(close(own) == 0);
  own = of_link("third", "of the parent");
  ready_and_wait();
  CHECK(leads_to(common, "of both") && leads_to(own, "of the parent") && access("first", F_OK) != 0);
  CHECK(wait_status(child) == 50);
  return survived();
}
