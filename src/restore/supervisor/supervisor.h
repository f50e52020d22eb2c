// The supervisor: everything that happens before the program's memory is put back. Ordinary
// C++, called by the command line. Reads the snapshot, checks whether this machine can hold it,
// prepares memory, files and namespaces, starts the launcher, and stays as the parent of the
// restored program.
//
// Owner: the command line. Threads: the main thread. Errors: a message on stderr and the class in
// the status file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

struct Options {
  bool dry_run = false;           // checks only
  bool running = false;           // checks of a snapshot whose program still runs
  bool lazy = false;              // run first, read memory when it is touched (pager.h)
  std::optional<uint64_t> steps;  // how far the program gets (DevicePlugin::step)
  std::string pid_file;           // gets the host pid of the program at the moment it runs again
  std::string status_file;        // JSON: state, code, text, pid, exit status
  bool keep_files =
      false;  // --files=keep: neither check nor truncate files that were open for writing
  std::string
      gpu_map;  // "A=B[,C=D]": other devices in the program's places (device/base/gpu_map.h)
  unsigned threads = 0;  // for reading the store; 0: all cores
  std::string launcher;  // empty: gpuckpt-launch beside this program
  uint64_t run = 0;      // which run of its job the program becomes (store/io/lease.h); 0: any
  std::function<void(int pid)> on_running = {};  // called when it runs again
  bool namespaces =
      true;  // false: new thread ids, no namespaces (GPUCKPT_NAMESPACES=0 does the same)
};

// Returns the program's exit status (128 + signal when one ended it). Failures of restore itself
// are printed on stderr and return 125, with the class (ExitCode) in --status-file. --dry-run
// returns 0 or the class itself. `ran` (may be null): whether the program has come to run again.
int restore_snapshot(const store::SnapshotReader&, const Options&, bool* ran = nullptr);

}  // namespace gpuckpt::restore
