// What machine this is, asked of the driver itself (nvidia-smi may be missing) and of the kernel:
// everything the product's ways of doing things depend on. usage: facts
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "api.h"
#include "realm.h"

static void able(const char* what, bool yes, int error) {
  stage("\"able\": \"%s\", \"yes\": %s, \"errno\": %d", what, yes ? "true" : "false",
        yes ? 0 : error);
}

// In a child: what may change the process or stop it for good.
template <typename F>
static void try_apart(const char* what, F body) {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    alarm(5);
    errno = 0;
    bool yes = body();
    able(what, yes, errno);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) able(what, false, -WTERMSIG(status));
}

struct Uffd {  // linux/userfaultfd.h, which old headers have without these
  uint64_t api, features, ioctls;
};
struct PageScan {  // linux/fs.h of 6.7
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, all, any, back;
};

static void kernel() {
  try_apart("userfaultfd", [] { return syscall(SYS_userfaultfd, O_CLOEXEC) >= 0; });
  try_apart("userfaultfd, user mode only",
            [] { return syscall(SYS_userfaultfd, O_CLOEXEC | 1) >= 0; });
  try_apart("userfaultfd WP_ASYNC", [] {
    int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | 1));
    if (fd < 0) fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
    Uffd api = {0xAA, 1ull << 15, 0};
    return fd >= 0 && ioctl(fd, _IOWR(0xAA, 0x3F, Uffd), &api) == 0;
  });
  try_apart("PAGEMAP_SCAN", [] {
    int fd = open("/proc/self/pagemap", O_RDONLY);
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PageScan scan = {sizeof scan,
                     0,
                     reinterpret_cast<uint64_t>(page),
                     reinterpret_cast<uint64_t>(page) + 4096,
                     0,
                     0,
                     0,
                     0,
                     0,
                     0,
                     0,
                     0};
    return fd >= 0 && ioctl(fd, _IOWR('f', 16, PageScan), &scan) >= 0;
  });
  try_apart("soft-dirty (clear_refs)", [] {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    return fd >= 0 && write(fd, "4", 1) == 1;
  });
  try_apart("clone3 with set_tid", [] {
    pid_t wanted = 30000;
    uint64_t args[11] = {};
    args[4] = SIGCHLD;
    args[8] = reinterpret_cast<uint64_t>(&wanted);
    args[9] = 1;
    long pid = syscall(435, args, sizeof args);
    if (pid == 0) _exit(0);
    return pid == wanted;
  });
  try_apart("clone3", [] {
    uint64_t args[8] = {};
    args[4] = SIGCHLD;
    long pid = syscall(435, args, sizeof args);
    if (pid == 0) _exit(0);
    return pid > 0;
  });
  try_apart("user namespace", [] { return unshare(CLONE_NEWUSER) == 0; });
  try_apart("user and pid and time namespace",
            [] { return unshare(CLONE_NEWUSER | CLONE_NEWPID | 0x80) == 0; });
  try_apart("membarrier", [] {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  });
  try_apart("process_vm_readv", [] {
    char a = 1, b = 0;
    iovec to{&b, 1}, from{&a, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
  });
  try_apart("ptrace of a child", [] {
    pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    bool yes = ptrace(PTRACE_SEIZE, child, 0, 0) == 0;
    int error = errno;
    kill(child, SIGKILL);
    errno = error;
    return yes;
  });
  try_apart("memfd", [] { return syscall(SYS_memfd_create, "probe", 0) >= 0; });
  try_apart("memfd of huge pages", [] { return syscall(SYS_memfd_create, "probe", 4) >= 0; });
  try_apart("MAP_FIXED_NOREPLACE", [] {
    void* want = reinterpret_cast<void*>(0x300000000000);
    return mmap(want, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
           want;
  });
  try_apart("moving the vdso (mremap)", [] {
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long start = 0, end = 0;
    while (maps && fgets(line, sizeof line, maps))
      if (strstr(line, "[vdso]")) sscanf(line, "%lx-%lx", &start, &end);
    if (!start) return false;
    void* to = reinterpret_cast<void*>(0x310000000000);
    return reinterpret_cast<void*>(syscall(SYS_mremap, start, end - start, end - start,
                                           MREMAP_MAYMOVE | MREMAP_FIXED, to)) == to;
  });
  try_apart("prctl PR_SET_MM_MAP size", [] {
    unsigned size = 0;
    return prctl(35 /* PR_SET_MM */, 15 /* PR_SET_MM_MAP_SIZE */, &size, 0, 0) == 0;
  });
  try_apart("8 TiB of reserved addresses", [] {
    return mmap(nullptr, 8ull << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
  });
  try_apart("io_uring", [] {
    char params[120] = {};
    return syscall(425, 4, params) >= 0;
  });
}

static void device() {
  const char* path = probe::find_driver();
  stage("\"fact\": \"driver file\", \"is\": \"%s\"", path);
  void* handle = dlopen(path, RTLD_NOW);
  if (!handle) {
    stage("\"stage\": \"no driver\", \"rc\": -1, \"why\": \"%s\"", dlerror());
    return;
  }
  Api api;
  api.bind(handle);
  int version = 0, count = 0;
  api.cuDriverGetVersion(&version);
  stage("\"fact\": \"driver API\", \"is\": %d", version);
  for (const char* name :
       {"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
        "cuCheckpointProcessGetRestoreThreadId", "cuLibraryLoadData", "cuMemAddressReserve",
        "cuGetProcAddress_v2", "cuGraphAddNode_v2", "cuGreenCtxCreate", "cuMulticastCreate"})
    stage("\"exports\": \"%s\", \"yes\": %s", name, dlsym(handle, name) ? "true" : "false");
  if (STEP("cuInit", api.cuInit(0))) return;
  if (STEP("count", api.cuDeviceGetCount(&count))) return;
  stage("\"fact\": \"devices\", \"is\": %d", count);
  for (int i = 0; i < count && i < 8; ++i) {
    CUdevice device;
    char name[128] = "";
    size_t total = 0;
    int major = 0, minor = 0;
    if (api.cuDeviceGet(&device, i)) continue;
    api.cuDeviceGetName(name, sizeof name, device);
    api.cuDeviceTotalMem(&total, device);
    api.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    api.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    stage("\"device\": %d, \"name\": \"%s\", \"memory\": %zu, \"capability\": \"%d%d\"", i, name,
          total, major, minor);
    if (i) continue;
    // By number: a header that does not know one is no hindrance.
    static const struct {
      int number;
      const char* name;
    } attributes[] = {{102, "virtual memory management"},
                      {103, "handle: posix fd"},
                      {128, "handle: fabric"},
                      {115, "memory pools"},
                      {116, "GPUDirect RDMA"},
                      {110, "GPUDirect RDMA with virtual memory management"},
                      {83, "managed memory"},
                      {88, "pageable memory access"},
                      {89, "concurrent managed access"},
                      {99, "host memory registered"},
                      {40, "copy engines"},
                      {16, "multiprocessors"},
                      {38, "L2 bytes"},
                      {36, "memory clock kHz"},
                      {37, "memory bus bits"},
                      {132, "multicast"},
                      {78, "stream priorities"},
                      {96, "cooperative launch"}};
    for (const auto& a : attributes) {
      int value = -1;
      int rc = api.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(a.number), device);
      stage("\"attribute\": \"%s\", \"number\": %d, \"rc\": %d, \"is\": %d", a.name, a.number, rc,
            value);
    }
  }
}

int main() {
  probe::evidence_install();
  kernel();
  device();
  stage("\"stage\": \"done\"");
}
