// Where the parts of this gpuckpt are: beside the program that runs, whatever the installation is
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
  std::string sim_compilers;  // NVRTC and nvJitLink hand out PTX
  std::string sim_python;     // what --sim=torch puts into PYTHONPATH
};
const Installation& installation();

bool readable(const std::string& path);

// Can LD_PRELOAD take effect in `program` (an absolute path)? Follows #! lines. Says what is wrong
// otherwise.
store::Status check_preloadable(const std::string& program);

// Has the program's own loader load `preload` (colon separated) without running the program.
store::Status check_loads(const std::string& program, const std::string& preload,
                          const std::string& must_contain);

// As execvp would find it; empty: not found.
std::string find_program(const std::string& name);

}  // namespace gpuckpt::cli
