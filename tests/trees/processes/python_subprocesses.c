// programs/subprocesses.py
#include "tree.h"
int main(void) {
  execlp("python3", "python3", TREE_PROGRAMS "/subprocesses.py", (char*)NULL);
  return 1;
}
