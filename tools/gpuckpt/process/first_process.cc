#include "process/first_process.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace gpuckpt::cli {
namespace {

constexpr int kSignalStatus = 128;  // added to a signal's number, as a shell does

void end(int number) {
  constexpr std::string_view kText =
      "gpuckpt: a signal ended it before the program ran; no snapshot is lost\n";
  (void)!write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kSignalStatus + number);
}

}  // namespace

void end_on_signals_as_first_process() {
  if (getpid() != 1) return;
  for (int number : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(number, end);
  }
}

}  // namespace gpuckpt::cli
