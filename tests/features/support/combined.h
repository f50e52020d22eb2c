// Included before a feature's source when it becomes one of several in a process (combined.c).
#pragma once
#include "feature.h"

void combined_ready(void);
int feature_main();

#define ready_and_wait combined_ready
#define survived() 0
#define main feature_main
