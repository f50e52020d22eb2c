#include "support/unshared_thread.h"
int main(void) { return wait_with_unshared_thread(CLONE_FILES); }
