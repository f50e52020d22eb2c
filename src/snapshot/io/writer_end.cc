#include "snapshot/io/writer_end.h"

#include <signal.h>

#include <cstdint>

#include "base/procfs/ended_status.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kPatienceUs = 200000;

}  // namespace

void describe_end(int pidfd, char* to, size_t room) {
  const int status = ended_status(pidfd, kPatienceUs), signal = status & 0x7f;
  if (status < 0)
    copy(to, room,
         "why is not known here: the kernel's log tells of a lack of memory; `gpuckpt doctor` and "
         "bin/gpuckpt-writer, run by hand, of what it does not find");
  else if (signal == SIGKILL)
    copy(to, room, "it was killed by signal 9, as the kernel does when memory runs out");
  else if (signal)
    format(to, room, "it was killed by signal %d", signal);
  else if (status >> 8 == 127)
    copy(to, room, "it could not start (status 127): does it find its libraries?");
  else
    format(to, room, "it exited with status %d", status >> 8);
}

}  // namespace gpuckpt
