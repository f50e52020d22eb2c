// What a restore is asked to do, and what it calls when the program runs.
//
// Owner: the caller of restore_snapshot() or preflight(), it is a value. Threads: one. Errors:
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace gpuckpt::restore {

struct Options {
  bool dry_run = false;           // checks only
  bool running = false;           // checks of a snapshot whose program still runs
  bool lazy = false;              // run first, read memory when it is touched (pager.h)
  std::optional<uint64_t> steps;  // how far the program gets (DevicePlugin::step)
  std::string pid_file;           // gets the host pid of the program at the moment it runs again
  std::string status_file;        // JSON: state, code, text, pid, exit status
  bool keep_files = false;        // --files=keep: neither check nor truncate files open for writing
  std::string gpu_map;   // "A=B[,C=D]": other devices in their places (device/base/gpu_map.h)
  unsigned threads = 0;  // for reading the store; 0: all cores
  std::string launcher;  // empty: gpuckpt-launch beside this program
  uint64_t run = 0;      // which run of its job the program becomes (store/io/lease.h); 0: any
  std::function<void(int pid)> on_running = {};  // called when it runs again
  bool namespaces = true;  // false: new thread ids (GPUCKPT_NAMESPACES=0 does the same)
};

}  // namespace gpuckpt::restore
