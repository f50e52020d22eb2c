#include "restore/leftovers.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

namespace gpuckpt::restore {

namespace {

// Torch's loaders look every five seconds whether their parent lives.
constexpr std::chrono::seconds kPatience(10);

bool still_runs(const Image& image) {
  return image.head.host_start_time &&
         start_time(image.head.host_pid) == image.head.host_start_time;
}

// "2 processes of the killed program (1234, 1235)", or "".
std::string leftovers(const Tree& tree) {
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

uint64_t start_time(pid_t pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(f)), {});
  size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size() || text[at + 2] == 'Z') return 0;
  const char* s = text.c_str() + at + 2;
  for (int field = 3; field < 22 && *s; ++s)
    if (*s == ' ') ++field;
  return strtoull(s, nullptr, 10);
}

void wait_for_leftovers(const Tree& tree) {
  const Image& root = tree.root().image;
  std::ifstream f("/proc/sys/kernel/random/boot_id");
  std::string boot;
  f >> boot;
  if (boot != root.head.boot_id || still_runs(root)) return;
  const auto begin = std::chrono::steady_clock::now();
  bool said = false;
  for (std::string left; !(left = leftovers(tree)).empty(); said = true) {
    if (!said) fprintf(stderr, "gpuckpt: waiting for %s to end\n", left.c_str());
    if (std::chrono::steady_clock::now() - begin > kPatience) {
      fprintf(stderr,
              "gpuckpt: warning: %s still run; end them when something of theirs is in the way\n",
              left.c_str());
      return;
    }
    usleep(20'000);
  }
}

}  // namespace gpuckpt::restore
