// The same with a second thread.
#define WITH_A_THREAD
#include "wait_alone.c"
