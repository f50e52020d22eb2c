// The arguments with which the library starts the writer, and how the writer detaches itself.
//
// Owner: main(). Threads: the first, before there is another one. Errors: a Status for the library.
#pragma once

#include <string>

#include "store/store.h"

namespace gpuckpt::writer {

struct Arguments {
  std::string store, key_file, mirror;
  int ring = -1, parent = -1, child = -1;
  int keep = -1;
  long user = -1, group = -1;  // to become; -1: it stays what it is
  uint64_t memory = ~0ull;     // bytes that this snapshot may take; ~0: no limit
  store::WriteOptions write;
};

// Ok, or the error to report to the library: the arguments come from its GPUCKPT_* variables.
store::Status parse(int argc, char** argv, Arguments* out);
// Becomes the user who is to own what is written. One that it may not become it is not.
void become_user(const Arguments&);
// Makes paths independent of the working directory.
void make_absolute(Arguments*);
// Moves the process to its own session, without a terminal, descriptor or folder of another
// process.
void stand_alone(const Arguments& arguments);

}  // namespace gpuckpt::writer
