#include "driver/base/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver/base/state.h"
#include "driver/context/notification.h"
#include "driver/generated/stubs.h"

namespace simgpu {

int unimplemented_stub(Stub& stub) {
  if (stub.calls.fetch_add(1) == 0) {
    const char* log = getenv("SIMGPU_LOG");
    if (log && *log == '1')
      say("%s is not implemented by the simulated driver (CUDA_ERROR_NOT_SUPPORTED)", stub.name);
  }
  char text[128];
  snprintf(text, sizeof text, "%s is not implemented by the simulated driver", stub.name);
  tell_log(text);
  return CUDA_ERROR_NOT_SUPPORTED;
}

void write_report() {
  const char* path = getenv("SIMGPU_REPORT");
  if (!path || *path == 0) return;
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  for (size_t i = 0; i < kStubs; ++i) {
    uint64_t calls = stubs[i].calls.load();
    if (calls != 0) dprintf(fd, "%s %llu\n", stubs[i].name, static_cast<unsigned long long>(calls));
  }
  close(fd);
}

}  // namespace simgpu
