// programs/start_methods.py
#include "tree.h"
int main(void) {
  execlp("python3", "python3", TREE_PROGRAMS "/start_methods.py", (char*)NULL);
  return 1;
}
