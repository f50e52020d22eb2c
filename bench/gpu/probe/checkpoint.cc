// Experiment 7: the driver's own checkpoint, called from inside the process, and its times.
// usage: checkpoint inside|thread|outside|forked GIGABYTES [vmm]
//   thread: another thread of the process calls; outside: the parent process does; forked: inside,
//   and while checkpointed a fork()ed child, which has the same memory under another process id but
//   not the driver's threads, tries to restore itself as a restored image would. vmm: the memory
//   is a mapped arena that is unmapped and released before the checkpoint, as a capsule would have
//   it.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "api.h"
#include "realm.h"

#if CUDA_VERSION < 12080  // headers from before these calls; the argument blocks are zero or opaque
enum CUprocessState : int {};
struct CUcheckpointLockArgs {
  unsigned timeoutMs, reserved0;
  cuuint64_t reserved1[7];
};
struct CUcheckpointCheckpointArgs {
  cuuint64_t reserved[8];
};
struct CUcheckpointRestoreArgs {
  cuuint64_t reserved[8];
};
struct CUcheckpointUnlockArgs {
  cuuint64_t reserved[8];
};
#endif
struct Checkpoint {
  CUresult (*state)(int, CUprocessState*);
  CUresult (*lock)(int, CUcheckpointLockArgs*);
  CUresult (*checkpoint)(int, CUcheckpointCheckpointArgs*);
  CUresult (*restore)(int, CUcheckpointRestoreArgs*);
  CUresult (*unlock)(int, CUcheckpointUnlockArgs*);
} g_api;
static int g_pid;
static bool g_forked, g_worked;
static Api* g_driver;

static void count_driver(const char* when) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[600];
  int mappings = 0, fds = 0, lines = 0;
  while (maps && fgets(line, sizeof line, maps))
    ++lines, mappings += strstr(line, "/dev/nvidia") != nullptr;
  if (maps) fclose(maps);
  for (int fd = 0; fd < 1024; ++fd) {
    char link[64], target[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) > 0)
      fds += strstr(target, "/dev/nvidia") != nullptr;
  }
  stage(
      "\"stage\": \"devices open\", \"when\": \"%s\", \"fds\": %d, \"nvidia_mappings\": %d, "
      "\"mappings\": %d",
      when, fds, mappings, lines);
}

static void restore_in_child() {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    alarm(15);
    stage("\"stage\": \"child\", \"pid\": %d", getpid());
    CUprocessState state = static_cast<CUprocessState>(-1);
    CUcheckpointRestoreArgs restore = {};
    CUcheckpointUnlockArgs unlock = {};
    STEP("child get state", g_api.state(getpid(), &state));
    stage("\"stage\": \"child state\", \"value\": %d", (int)state);
    if (STEP("child restore", g_api.restore(getpid(), &restore)) == 0) {
      STEP("child unlock", g_api.unlock(getpid(), &unlock));
      try_kernel(*g_driver);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  stage("\"stage\": \"child ended\", \"status\": %d, \"signal\": %d",
        WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void* cycle(void*) {
  CUprocessState state = static_cast<CUprocessState>(-1);
  CUcheckpointLockArgs lock = {};
  lock.timeoutMs = 10000;
  CUcheckpointCheckpointArgs checkpoint = {};
  CUcheckpointRestoreArgs restore = {};
  CUcheckpointUnlockArgs unlock = {};
  STEP("get state", g_api.state(g_pid, &state));
  stage("\"stage\": \"state\", \"value\": %d", (int)state);
  if (STEP("lock", g_api.lock(g_pid, &lock))) return nullptr;
  if (STEP("checkpoint", g_api.checkpoint(g_pid, &checkpoint)) == 0) {
    if (g_pid == getpid()) count_driver("checkpointed");
    if (g_forked) restore_in_child();
    g_worked = STEP("restore", g_api.restore(g_pid, &restore)) == 0;
  }
  if (STEP("unlock", g_api.unlock(g_pid, &unlock))) g_worked = false;
  return nullptr;
}

int main(int argc, char** argv) {
  probe::evidence_install();
  const char* mode = argc > 1 ? argv[1] : "inside";
  double gigabytes = argc > 2 ? atof(argv[2]) : 1;
  bool vmm = argc > 3 && !strcmp(argv[3], "vmm");
  int to_parent[2], to_child[2];
  bool outside = !strcmp(mode, "outside");
  g_forked = !strcmp(mode, "forked");
  if (pipe(to_parent) || pipe(to_child)) return 2;
  pid_t subject = outside ? fork() : 0;
  char byte = 0;
  void* handle = dlopen(probe::find_driver(), RTLD_NOW);
  if (!handle) {
    if (!subject) stage("\"stage\": \"no driver\"");
    return 3;
  }
  Api api;
  api.bind(handle);
  g_driver = &api;
#define BIND(field, name) \
  g_api.field = reinterpret_cast<decltype(g_api.field)>(dlsym(handle, name));
  BIND(state, "cuCheckpointProcessGetState")
  BIND(lock, "cuCheckpointProcessLock")
  BIND(checkpoint, "cuCheckpointProcessCheckpoint")
  BIND(restore, "cuCheckpointProcessRestore")
  BIND(unlock, "cuCheckpointProcessUnlock")
#undef BIND
  if (!g_api.lock || !g_api.checkpoint) {
    if (!subject) stage("\"stage\": \"the driver has no cuCheckpointProcess calls\"");
    return 3;
  }
  if (subject) {  // the outside caller
    close(to_parent[1]);
    if (read(to_parent[0], &byte, 1) == 1) {
      STEP("outside cuInit", api.cuInit(0));
      g_pid = subject;
      cycle(nullptr);
      if (!g_worked) stage("\"stage\": \"the cycle failed\"");
      if (write(to_child[1], &byte, 1) != 1) return 2;
    }
    int status = 0;
    waitpid(subject, &status, 0);
    stage("\"stage\": \"subject ended\", \"status\": %d", status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
  }
  CUdevice device;
  CUcontext context;
  if (enter_context(api, &device, &context)) return 3;
  if (try_kernel(api)) return 4;
  size_t bytes = static_cast<size_t>(gigabytes * 1024) << 20;
  CUdeviceptr memory = 0;
  CUmemGenericAllocationHandle physical = 0;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (vmm && bytes) {
    if (STEP("reserve", api.cuMemAddressReserve(&memory, bytes, 0, 0x100000000000, 0))) return 4;
    if (STEP("create", api.cuMemCreate(&physical, bytes, &prop, 0))) return 4;
    if (STEP("map", api.cuMemMap(memory, bytes, 0, physical, 0))) return 4;
    if (STEP("access", api.cuMemSetAccess(memory, bytes, &access, 1))) return 4;
  } else if (bytes) {
    if (STEP("alloc", api.cuMemAlloc(&memory, bytes))) return 4;
  }
  if (bytes)
    STEP("fill", api.cuMemsetD8(memory, 0x5a, bytes)), STEP("filled", api.cuCtxSynchronize());
  count_driver("before");
  if (vmm && bytes) {
    STEP("unmap", api.cuMemUnmap(memory, bytes));
    STEP("release", api.cuMemRelease(physical));
  }
  g_pid = getpid();
  if (outside) {
    close(to_child[1]);
    close(to_parent[0]);
    if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1) return 2;
  } else if (!strcmp(mode, "thread")) {
    pthread_t thread;
    pthread_create(&thread, nullptr, cycle, nullptr);
    pthread_join(thread, nullptr);
  } else {
    cycle(nullptr);
  }
  count_driver("after");
  if (vmm && bytes) {
    if (STEP("create again", api.cuMemCreate(&physical, bytes, &prop, 0))) return 5;
    if (STEP("map again", api.cuMemMap(memory, bytes, 0, physical, 0))) return 5;
    STEP("access again", api.cuMemSetAccess(memory, bytes, &access, 1));
  } else if (bytes) {
    unsigned char got = 0;
    STEP("read", api.cuMemcpyDtoH(&got, memory + bytes - 1, 1));
    stage("\"stage\": \"contents\", \"rc\": %d", got == 0x5a ? 0 : -1);
  }
  CUcontext current = nullptr;
  api.cuCtxGetCurrent(&current);
  stage("\"stage\": \"same context\", \"rc\": %d", current == context ? 0 : -1);
  if (try_kernel(api)) return 5;
  if (!outside && !g_worked) return 7;
  stage("\"stage\": \"done\"");
}
