#include "restore/supervisor/stale_processes.h"

#include <stdio.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "store/io/printable.h"
#include "store/io/process_identity.h"

namespace gpuckpt::restore {

namespace {

// PyTorch's data loaders check every five seconds whether their parent lives.
constexpr std::chrono::seconds kPatience(10);

bool still_runs(const Image& image) {
  return image.head.host_start_time &&
         store::start_time(image.head.host_pid) == image.head.host_start_time;
}

// "2 processes of the killed program (1234, 1235)", or "".
std::string stale_processes(const Tree& tree) {
  std::string numbers;
  int count = 0;
  for (const auto& m : tree.members)
    if (still_runs(m->image)) {
      numbers += (count++ ? ", " : "") + std::to_string(m->image.head.host_pid);
    }
  if (!count) return "";
  return std::to_string(count) + (count == 1 ? " process" : " processes") +
         " of the killed program (" + numbers + ")";
}

}  // namespace

void wait_for_stale_processes(const Tree& tree) {
  const Image& root = tree.root().image;
  if (store::boot_id() != root.head.boot_id || still_runs(root)) return;
  const auto begin = std::chrono::steady_clock::now();
  bool said = false;
  for (std::string left; !(left = stale_processes(tree)).empty(); said = true) {
    if (!said) store::say("gpuckpt: waiting for %s to end\n", left.c_str());
    if (std::chrono::steady_clock::now() - begin > kPatience) {
      store::say(
          "gpuckpt: warning: %s still run; end them when something of theirs is in the way\n",
          left.c_str());
      return;
    }
    usleep(20'000);
  }
}

}  // namespace gpuckpt::restore
