#include "restore/supervisor/launcher_terminal.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace gpuckpt::restore {

using namespace process;

namespace {

constexpr unsigned long kGetSettings = 0x802c542a, kSetSettings = 0x402c542b;  // TCGETS2, TCSETS2

bool is_made_anew(const Tree& tree, uint64_t number_and_one) {
  for (const auto& m : tree.members)
    for (const Image::Terminal& t : m->image.terminals)
      if (number_and_one == t.head.number + 1) return true;
  return false;
}

const OutsideTerminal* of_root(const Tree& tree) {
  for (const OutsideTerminal& t : tree.root().image.outside_terminals)
    for (const auto& [d, path] : tree.root().image.fds)
      if (d.fd == t.fd && d.kind == kFdTerminal && !is_made_anew(tree, d.value[1])) return &t;
  return nullptr;
}

// Called as from a foreground process: one in the background would be stopped.
void set(int fd, const uint8_t (&settings)[64]) {
  struct sigaction ignore {
  }, old{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGTTOU, &ignore, &old);
  ioctl(fd, kSetSettings, settings);
  sigaction(SIGTTOU, &old, nullptr);
}

}  // namespace

void LauncherTerminal::give_to(const Tree& tree) {
  const OutsideTerminal* wanted = of_root(tree);
  if (!wanted) return;
  for (int fd : {static_cast<int>(wanted->fd), 0, 1, 2}) {
    uint8_t now[64]{};
    if (ioctl(fd, kGetSettings, now) != 0) continue;
    if (tcgetpgrp(fd) != getpgrp() || memcmp(now, wanted->settings, sizeof(now)) == 0) return;
    memcpy(before_, now, sizeof(now));
    fd_ = fd;
    set(fd, wanted->settings);
    return;
  }
}

void LauncherTerminal::take_back() {
  if (fd_ >= 0) set(fd_, before_);
  fd_ = -1;
}

}  // namespace gpuckpt::restore
