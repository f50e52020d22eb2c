// What the library starts the writer with, and the place of its own that the writer takes.
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
  uint64_t memory = ~0ull;  // that this snapshot may take; ~0: as much as it likes
  store::WriteOptions write;
};

// Ok, or what the library is to be told: these come from its GPUCKPT_* variables.
store::Status parse(int argc, char** argv, Arguments* out);
// Paths do not depend on the folder any more.
void make_absolute(Arguments*);
// Its own session, no terminal, and no descriptor or folder of another process.
void stand_alone(const Arguments& arguments);

}  // namespace gpuckpt::writer
