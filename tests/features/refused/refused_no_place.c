// A folder in a mount that has no place in the tree (open_tree): its name, "/", leads to another one.
#include "feature.h"
int main(void) {
  enum { kOpenTree = 428, kClone = 1 };
  const int tree = (int)syscall(kOpenTree, AT_FDCWD, ".", kClone);
  if (tree < 0) absent("open_tree");
  ready_and_wait();
  const int here = openat(tree, "ready", O_RDONLY | O_CREAT, 0600);
  CHECK(here >= 0 && access("ready", F_OK) == 0);
  return survived();
}
