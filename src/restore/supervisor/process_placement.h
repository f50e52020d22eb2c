// The parent, session and process group of each process of a job, and the ended children that no
// parent has waited for. The first part of start.cc; for that file only.
//
// Owner: the Start belongs to start_program(), each fork has a copy; Progress is shared. Threads:
// one in each process. Errors: fail(), which reports to the supervisor and ends the process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "restore/descriptors/job_fds.h"
#include "restore/image/tree.h"
#include "restore/preflight/process_ids.h"
#include "restore/supervisor/start.h"

namespace gpuckpt::restore {

// What all processes of one start share; inherited by fork.
struct Start {
  const Tree& tree;
  const std::string& launcher;
  Ids ids;
  bool user_namespace;
  bool terminal;  // the launcher has one, and the root stays in its session to use it
  bool common_made;
  CommonFds common;  // of several processes, made before the second is forked
  SharedPidfds pidfds;
  std::vector<pid_t> spares;  // numbers for processes that end at once, one for each member and one
                              // more; 0: any
  void (*become)(Start*, size_t);  // makes the calling process member i; does not return
  Namespaces restorer;
  // In memory that all share: how many have their session and lead their group, how many are in
  // their group, and whether one of them has failed.
  struct Progress {
    std::atomic<uint32_t> leading, grouped, failed;
  } * progress;
};

[[noreturn]] void fail(int report, int code, const std::string& text);
// Reports what this process begins (kReportStep).
void begin_step(int report, const char* name, int seconds);
[[noreturn]] void fail(const Start&, int report, int code, const std::string& text);

// Numbers that no process of the job needs, when numbers can be chosen.
std::vector<pid_t> find_spares(const Tree&, Ids);

// Called in the process that becomes member i: its session, its group, its children.
void enter_session_and_group(Start*, size_t i, int report);

// Called in the intermediate forker, which ends then: forks the root, as its sibling, and the
// orphans, as its children.
void make_root_and_orphans(Start*);
// A sibling of the intermediate forker that forks the root, and ends; 0: the intermediate forker
// itself forks it.
pid_t root_helper(const Start&);

}  // namespace gpuckpt::restore
