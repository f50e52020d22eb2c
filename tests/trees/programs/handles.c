// handles STEPS PACE_MS FLAGS [WORKERS]: processes that have each other's memory by shareable handles (cuMemExportToShareableHandle,
// descriptors sent through sockets). Each writes to a place of its own in the memory of all processes, at the same time; each step's line depends
// on all of it. Memory is handed round as well: made, filled and let go of by one, it is in a descriptor on its way to the next one until
// the step after. What a process leaves behind that ended right at the start is the first one's.
// Pools go the same way, and memory from them by what cuMemPoolExportPointer says of it.
//   o  a process outside of the job has a descriptor
//   e  the memory of the process that ended belongs to all processes
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../programs/driver.h"

enum { kMost = 6, kPlace = 512, kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };
#define kBytes ((size_t)2 << 20)

typedef struct {
  int fd;  // -1: closed since
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
} Memory;
static Memory memory[kMost + 1];  // the last: of the process that ended
static uint64_t host[kPlace];
static int processes = 3, self, ring_in, ring_out;

// From the pool of each process; what it is called lies in memory that all have.
static struct {
  int fd;
  CUmemoryPool pool;
  CUdeviceptr at;
} pooled[kMost];
static CUmemPoolPtrExportData* called;

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 29); }
static void expect(int condition, int line) {
  if (condition) return;
  fprintf(stderr, "process %d: line %d\n", self, line);
  _exit(4);
}
#define EXPECT(condition) expect(condition, __LINE__)

static void send_descriptor(int socket, int fd) {
  char byte = 'd', control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  EXPECT(sendmsg(socket, &m, 0) == 1);
}
static int receive_descriptor(int socket) {
  int fd;
  char byte, control[CMSG_SPACE(sizeof fd)];
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  EXPECT(recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m));
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
  return fd;
}

static CUmemAllocationProp properties(void) {
  CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}
static void map(Memory* m) {
  CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (!m->at) OK(DRIVER(cuMemAddressReserve)(&m->at, kBytes, 0, 0, 0));
  OK(DRIVER(cuMemMap)(m->at, kBytes, 0, m->handle, 0));
  OK(DRIVER(cuMemSetAccess)(m->at, kBytes, &access, 1));
}
static void unmap(Memory* m) {
  OK(DRIVER(cuMemUnmap)(m->at, kBytes));
  OK(DRIVER(cuMemRelease)(m->handle));
}
static void make(Memory* m, int value) {
  CUmemAllocationProp p = properties();
  OK(DRIVER(cuMemCreate)(&m->handle, kBytes, &p, 0));
  map(m);
  OK(DRIVER(cuMemsetD32_v2)(m->at, (unsigned)value, kBytes / 4));
  OK(DRIVER(cuCtxSynchronize)());
  OK(DRIVER(cuMemExportToShareableHandle)(&m->fd, m->handle, (CUmemAllocationHandleType)kDescriptor, 0));
}
static void import(Memory* m) {
  OK(DRIVER(cuMemImportFromShareableHandle)(&m->handle, (void*)(intptr_t)m->fd, (CUmemAllocationHandleType)kDescriptor));
  CUmemAllocationProp p;
  OK(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&p, m->handle));
  EXPECT(p.location.type == CU_MEM_LOCATION_TYPE_DEVICE && p.location.id == 0);
  map(m);
}

// Every third process keeps the descriptors that it got, to import from them again.
static void import_others(int last) {
  for (int i = 0; i < last; ++i) {
    if (i == self) continue;
    import(&memory[i]);
    if (self % 3) continue;
    close(memory[i].fd);
    memory[i].fd = -1;
  }
}

static void make_pooled(void) {
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
  p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUdeviceptr first;
  OK(DRIVER(cuMemPoolCreate)(&pooled[self].pool, &p));
  OK(DRIVER(cuMemAllocFromPoolAsync)(&first, 3000, pooled[self].pool, NULL));
  OK(DRIVER(cuMemAllocFromPoolAsync)(&pooled[self].at, kMost * sizeof host, pooled[self].pool, NULL));
  OK(DRIVER(cuMemsetD32_v2)(pooled[self].at, (unsigned)self + 50, kMost * sizeof host / 4));
  OK(DRIVER(cuCtxSynchronize)());
  OK(DRIVER(cuMemPoolExportToShareableHandle)(&pooled[self].fd, pooled[self].pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(DRIVER(cuMemPoolExportPointer)(&called[self], pooled[self].at));
}
static void import_pool(int i) {
  OK(DRIVER(cuMemPoolImportFromShareableHandle)(&pooled[i].pool, (void*)(intptr_t)pooled[i].fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(pooled[i].fd);
}
static void import_pooled(int i, uint64_t step) {
  CUdeviceptr other;
  if (pooled[i].at && step % 8) OK(DRIVER(cuMemFree_v2)(pooled[i].at));
  if (pooled[i].at && step % 8 == 0) OK(DRIVER(cuMemFreeAsync)(pooled[i].at, NULL));
  EXPECT(DRIVER(cuMemAllocFromPoolAsync)(&other, 3000, pooled[i].pool, NULL) == CUDA_ERROR_INVALID_VALUE);
  OK(DRIVER(cuMemPoolImportPointer)(&pooled[i].at, pooled[i].pool, &called[i]));
}

static uint64_t change(CUdeviceptr at, uint64_t sum, uint64_t step) {
  OK(DRIVER(cuMemcpyDtoH_v2)(host, at, sizeof host));
  for (int k = 0; k < kPlace; ++k) sum = host[k] = mix(mix(host[k], sum), step);
  OK(DRIVER(cuMemcpyHtoD_v2)(at, host, sizeof host));
  return sum;
}

// What came is looked at, by a mapping or not at all; something new goes.
static uint64_t hand_round(uint64_t step) {
  static Memory coming, going;
  uint64_t sum = 0;
  if (processes == 1) return sum;
  if (step > 1) {
    coming.fd = receive_descriptor(ring_in);
    import(&coming);
    close(coming.fd);
    OK(DRIVER(cuMemcpyDtoH_v2)(host, coming.at + kBytes - sizeof host, sizeof host));
    for (int k = 0; k < kPlace; ++k) sum = mix(sum, host[k]);
    EXPECT((uint32_t)host[0] == (uint32_t)(step * 10 - 10 + (uint64_t)((self + processes - 1) % processes)));
    unmap(&coming);
  }
  make(&going, (int)(step * 10 + (uint64_t)self));
  unmap(&going);
  send_descriptor(ring_out, going.fd);
  close(going.fd);
  return sum;
}

static uint64_t work(uint64_t step) {
  uint64_t sum = hand_round(step);
  for (int i = 0; i < processes; ++i) {
    if (i != self && memory[i].fd >= 0 && step % 4 == 0) {
      unmap(&memory[i]);
      import(&memory[i]);
    }
    sum = change(memory[i].at + (CUdeviceptr)self * sizeof host, sum, step);
    if (i != self && (step == 1 || (step + (uint64_t)self) % 4 == 0)) import_pooled(i, step);
    sum = change(pooled[i].at + (CUdeviceptr)self * sizeof host, sum, step);
  }
  if (memory[kMost].at) sum = change(memory[kMost].at + (CUdeviceptr)self * sizeof host, sum, step);
  return sum;
}

static void all(ssize_t done, size_t wanted) { EXPECT(done == (ssize_t)wanted); }

static void run_worker(int socket, int left) {
  uint64_t step;
  start_driver();
  make(&memory[self], self);
  make_pooled();
  send_descriptor(socket, memory[self].fd);
  send_descriptor(socket, pooled[self].fd);
  for (int i = 0; i < processes; ++i) {
    if (i == self) continue;
    memory[i].fd = receive_descriptor(socket);
    pooled[i].fd = receive_descriptor(socket);
    import_pool(i);
  }
  if (left) {
    memory[kMost].fd = receive_descriptor(socket);
    import(&memory[kMost]);
    close(memory[kMost].fd);
  }
  import_others(processes);
  while (read(socket, &step, sizeof step) == sizeof step) {
    const uint64_t sum = work(step);
    all(write(socket, &sum, sizeof sum), sizeof sum);
  }
  _exit(0);
}

static void two(int ends[2]) { EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0); }

// Makes memory, hands it over and ends.
static void run_ending(int socket) {
  start_driver();
  make(&memory[kMost], 77);
  send_descriptor(socket, memory[kMost].fd);
  char byte;
  all(read(socket, &byte, 1), 1);
  _exit(0);
}

// Whoever runs with nothing of the job's name in its environment, and has no parent in it, is outside.
static void hand_to_stranger(void) {
  int fd;
  OK(DRIVER(cuMemExportToShareableHandle)(&fd, memory[0].handle, (CUmemAllocationHandleType)kDescriptor, 0));
  int there = fcntl(fd, F_DUPFD, 10);
  close(fd);
  pid_t child = fork();
  if (child == 0) {
    if (fork()) _exit(0);
    for (int i = 0; i < 600; ++i)
      if (i != there) close(i);
    unsetenv("GPUCKPT_JOB_NAME");
    char* words[] = {"sleep", "20", NULL};
    syscall(SYS_execve, "/bin/sleep", words, environ);
    _exit(2);
  }
  close(there);
  waitpid(child, NULL, 0);
}

int main(int argc, char** argv) {
  const long steps = atol(argv[1]), pace = atol(argv[2]);
  const char* flags = argc > 3 ? argv[3] : "";
  if (argc > 4) processes = 1 + atoi(argv[4]);
  setvbuf(stdout, NULL, _IOLBF, 1024);
  int to[kMost], ring[kMost][2], left[2];
  pid_t pid[kMost];
  const int shared_left = strchr(flags, 'e') != NULL;
  for (int i = 0; i < processes; ++i) two(ring[i]);
  two(left);
  called = mmap(NULL, kMost * sizeof *called, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t ending = fork();
  if (ending == 0) run_ending(left[1]);
  for (self = 1; self < processes; ++self) {
    int ends[2];
    two(ends);
    if ((pid[self] = fork()) == 0) {
      for (int k = 1; k < self; ++k) close(to[k]);
      close(ends[0]), close(left[0]), close(left[1]);
      ring_in = ring[self][0], ring_out = ring[(self + 1) % processes][1];
      run_worker(ends[1], shared_left);
    }
    close(ends[1]);
    to[self] = ends[0];
  }
  self = 0;
  ring_in = ring[0][0], ring_out = ring[1 % processes][1];
  start_driver();
  make(&memory[0], 0);
  memory[kMost].fd = receive_descriptor(left[0]);
  import(&memory[kMost]);
  make_pooled();
  for (int i = 1; i < processes; ++i) {
    memory[i].fd = receive_descriptor(to[i]);
    pooled[i].fd = receive_descriptor(to[i]);
  }
  for (int i = 1; i < processes; ++i) {
    for (int k = 0; k < processes; ++k) {
      if (k == i) continue;
      send_descriptor(to[i], memory[k].fd);
      send_descriptor(to[i], pooled[k].fd);
    }
    if (shared_left) send_descriptor(to[i], memory[kMost].fd);
  }
  for (int i = 1; i < processes; ++i) import_pool(i);
  close(memory[kMost].fd);
  all(write(left[0], "e", 1), 1);
  int status;
  waitpid(ending, &status, 0);
  close(left[0]), close(left[1]);
  import_others(processes);
  if (strchr(flags, 'o')) hand_to_stranger();
  uint64_t sum = 0;
  for (uint64_t step = 1; step <= (uint64_t)steps; ++step) {
    uint64_t answer;
    for (int i = 1; i < processes; ++i) all(write(to[i], &step, sizeof step), sizeof step);
    sum = mix(sum, work(step));
    for (int i = 1; i < processes; ++i) {
      all(read(to[i], &answer, sizeof answer), sizeof answer);
      sum = mix(sum, answer);
    }
    printf("step %lu %016lx\n", (unsigned long)step, (unsigned long)sum);
    usleep((useconds_t)pace * 1000);
  }
  for (int i = 1; i < processes; ++i) {
    close(to[i]);
    waitpid(pid[i], &status, 0);
    printf("worker %d: %d\n", i, status);
  }
}
