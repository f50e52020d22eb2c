// The header stands alone in C++, and what it declares links.
#include "gpuckpt/gpuckpt.h"

int main() { return gpuckpt_checkpoint_poll(nullptr) == 1 ? 0 : 1; }
