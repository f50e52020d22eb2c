// The option --children of the verbs that take snapshots.
#pragma once

#include <string>

#include "options.h"

namespace gpuckpt::cli {

inline Option add_children(Verb verb, std::string* choice) {
  return verb
      .option("--children", *choice,
              "Child processes: all (the default; one without gpuckpt's library refuses the "
              "snapshot), able (such a one is left out), ignore (all are left out)")
      .one_of({"all", "able", "ignore"});
}

}  // namespace gpuckpt::cli
