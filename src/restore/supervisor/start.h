// From the checks to the running program: namespaces, ids, descriptors, exec of the launcher.
//
// Owner: the caller has the child and the descriptors. Threads: the main thread, before any other
// exists. Errors: false with a sentence, or a report of the process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/image/tree.h"
#include "restore/memory/memory_loader.h"
#include "restore/options.h"
#include "restore/protocol/plan.h"

namespace gpuckpt::restore {

// How the program gets its old process and thread ids.
enum class Ids {
  kHere,       // in this pid namespace: privileged, and all of them are free
  kNamespace,  // in a pid namespace of its own (with a user namespace where there is no privilege)
  kNew,        // not at all: new ids, mutex owners are rewritten
};

struct Started {
  pid_t child = -1;  // of ours: the program itself, or the init of its namespace; -1: none was made
  Fd status;         // of a program below that init: its wait status arrives here
};

// True when the program is being started; the outcome comes on `report`. Otherwise `error` says why
// not. Every member's `report` is set.
bool start_program(Tree*, const std::string& launcher, Ids, Started* out, std::string* error);

}  // namespace gpuckpt::restore
