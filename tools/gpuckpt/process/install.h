// Where the files of this installation are: relative to the running program, whatever its folder is
// called.
#pragma once

#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

struct Installation {
  std::string root;      // the folder above bin/
  std::string library;   // lib/libgpuckpt.so
  std::string writer;    // bin/gpuckpt-writer
  std::string launcher;  // bin/gpuckpt-launch
  std::string sim_folder, sim_driver, sim_runtime;
  std::string sim_compilers;  // preloaded so that NVRTC and nvJitLink produce PTX
  std::string sim_python;     // what --sim=torch puts into PYTHONPATH
};
const Installation& installation();

bool readable(const std::string& path);

// Whether LD_PRELOAD takes effect in `program` (an absolute path), following #! lines; if not, the
// Status says why.
store::Status check_preloadable(const std::string& program);

// Checks that the program's own loader loads `preload` (colon separated), without running the
// program.
store::Status check_loads(const std::string& program, const std::string& preload,
                          const std::string& must_contain);

// The path that execvp would use; empty: not found.
std::string find_program(const std::string& name);

}  // namespace gpuckpt::cli
