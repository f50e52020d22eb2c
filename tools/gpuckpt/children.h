// The option --children of the verbs that take snapshots.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace gpuckpt::cli {

inline CLI::Option* add_children(CLI::App* verb, std::string* choice) {
  return verb
      ->add_option("--children", *choice,
                   "Child processes: all (the default; one without gpuckpt's library refuses the "
                   "snapshot), able (such a one is left out), ignore (all are left out)")
      ->check(CLI::IsMember({"all", "able", "ignore"}));
}

}  // namespace gpuckpt::cli
