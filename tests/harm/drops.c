// Drops root's rights for those of nobody, as servers do; after that the kernel shows the process
// (PR_SET_DUMPABLE) to root alone. "moment": by seteuid, and comes back. "worker": a child of it does, and it stays root itself.
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "../features/feature.h"

enum { kNobody = 65534 };

static void drop(void) {
  const gid_t groups[] = {7, kNobody};
  CHECK(setgroups(2, groups) == 0 && setresgid(kNobody, kNobody, kNobody) == 0);
  CHECK(setresuid(kNobody, kNobody, kNobody) == 0);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

int main(int count, char** words) {
  if (count > 1 && strcmp(words[1], "worker") == 0) {
    int ready[2], status = 1;
    CHECK(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
      drop();
      CHECK(write(ready[1], "", 1) == 1);
      while (access("go_on", F_OK) != 0) sleep_ms(5);
      _exit(0);
    }
    char byte;
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
    ready_and_wait();
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return survived();
  }
  if (count > 1 && strcmp(words[1], "moment") == 0) {
    CHECK(setegid(kNobody) == 0 && seteuid(kNobody) == 0);
    ready_and_wait();
    CHECK(geteuid() == kNobody && getegid() == kNobody && access("/root", X_OK) == 0);
    CHECK(seteuid(0) == 0 && setegid(0) == 0);
    return survived();
  }
  drop();
  const int dumpable = prctl(PR_GET_DUMPABLE);
  ready_and_wait();
  CHECK(prctl(PR_GET_DUMPABLE) == dumpable);
  CHECK(setresuid(0, 0, 0) != 0 && access("/root/gpuckpt", F_OK) != 0 && errno == EACCES);
  return survived();
}
