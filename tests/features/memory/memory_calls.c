// System calls whose buffers and structs lie in large memory that the program has not touched since: each works as on
// memory that is there, blocked calls go on without EINTR, and signals find their stacks. (Restored lazily, none of it is
// there yet, and an ordinary user's kernel would not wait for it.)
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include "feature.h"
enum { kPage = 4096, kPages = 4096 };
static char* memory;
static int used = 8;
// The next page, which keeps what it held; every second one is never written.
static void* page(void) {
  used += 2;
  CHECK(used < kPages);
  return memory + (size_t)used * kPage;
}
static int idle, quiet_read, quiet_write;

static volatile int handled;
static char* stack_of_handler;
static void handler(int sig) {
  char here;
  CHECK(sig == SIGUSR2 && &here >= stack_of_handler && &here < stack_of_handler + 64 * 1024);
  handled = 1;
}

static void* wait_for_ever(void* events) {  // until the end of the test
  int n = epoll_wait(idle, events, 4, -1);
  CHECK(n == 1 && ((struct epoll_event*)events)->data.u64 == 77);
  return NULL;
}
static void* wait_for_a_time(void* events) {
  int n = epoll_wait(quiet_read, events, 4, 2500);
  CHECK(n == 0);
  return NULL;
}
static void* wait_for_signal(void* info) {
  sigset_t* set = page();
  sigemptyset(set);
  sigaddset(set, SIGRTMIN);
  CHECK(sigwaitinfo(set, info) == SIGRTMIN && ((siginfo_t*)info)->si_value.sival_int == 5);
  return NULL;
}
static void* read_one(void* to) {
  CHECK(read(quiet_write, to, 3) == 3 && memcmp(to, "abc", 3) == 0);
  return NULL;
}
static void* made_later(void* at) {
  CHECK(*(int*)at == 12345);
  return at;
}

int main(void) {
  memory = mmap(NULL, (size_t)kPages * kPage, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  for (size_t i = 0; i < kPages; i += 2) memset(memory + i * kPage, (int)(i / 2 % 251 + 1), kPage);
  sigset_t real_time;
  sigemptyset(&real_time);
  sigaddset(&real_time, SIGRTMIN);
  // posix_spawn blocks all signals for a moment, in which another thread would get SIGCHLD.
  sigaddset(&real_time, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &real_time, NULL);
  // What the calls get, written now.
  int pipes[2], other[2], ends[2];
  CHECK(pipe(pipes) == 0 && pipe(other) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  idle = epoll_create1(0), quiet_read = epoll_create1(0), quiet_write = other[0];
  struct epoll_event wanted = {EPOLLIN, {.u64 = 77}};
  CHECK(epoll_ctl(idle, EPOLL_CTL_ADD, pipes[0], &wanted) == 0);
  char *const path = page(), *const across = (char*)page() + kPage - 5;
  strcpy(path, "/proc/self/exe");
  strcpy(across, "/dev/null");
  struct iovec* const parts = page();
  parts[0].iov_base = page(), parts[0].iov_len = 7;
  parts[1].iov_base = page(), parts[1].iov_len = 2 * kPage;
  strcpy(parts[0].iov_base, "seven..");
  struct msghdr* const message = page();
  memset(message, 0, sizeof(*message));
  message->msg_iov = parts, message->msg_iovlen = 1, message->msg_control = page(), message->msg_controllen = CMSG_SPACE(sizeof(int));
  memset(message->msg_control, 0, CMSG_SPACE(sizeof(int)));
  struct cmsghdr* passed = CMSG_FIRSTHDR(message);
  passed->cmsg_level = SOL_SOCKET, passed->cmsg_type = SCM_RIGHTS, passed->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(passed), &idle, sizeof(int));
  struct pollfd* const polled = page();
  polled[0] = (struct pollfd){ends[1], POLLIN, 0};
  fd_set* const ready_set = page();
  FD_ZERO(ready_set);
  FD_SET(ends[1], ready_set);
  struct timeval* const no_time = page();
  *no_time = (struct timeval){0, 0};
  struct timespec* const moment = page();
  *moment = (struct timespec){0, 1000000};
  struct sigaction* const action = page();
  memset(action, 0, sizeof(*action));
  action->sa_handler = handler, action->sa_flags = SA_ONSTACK;
  stack_t* const stack = page();
  stack_of_handler = memory + 3000 * kPage;
  stack->ss_sp = stack_of_handler, stack->ss_size = 64 * 1024, stack->ss_flags = 0;
  socklen_t* const length = page();
  *length = sizeof(int);
  int *const value = page(), *const of_thread = page();
  *of_thread = 12345;
  char** const arguments = page();
  char* const program = page();
  strcpy(program, "/bin/true");
  arguments[0] = program, arguments[1] = NULL;
  pthread_t waiting[4];
  waiting[0] = start_thread(wait_for_ever, page());
  waiting[1] = start_thread(wait_for_a_time, page());
  waiting[2] = start_thread(wait_for_signal, page());
  waiting[3] = start_thread(read_one, page());
  usleep(50000);
  ready_and_wait();

  CHECK(write(ends[0], parts[0].iov_base, 7) == 7);
  CHECK(poll(polled, 1, 0) == 1 && polled[0].revents == POLLIN);
  CHECK(select(ends[1] + 1, ready_set, NULL, NULL, no_time) == 1);
  char* into = page();
  CHECK(read(ends[1], into, kPage) == 7 && memcmp(into, "seven..", 7) == 0 && into[100] == into[4000]);
  CHECK(sendmsg(ends[0], message, 0) == 7);
  memset(message->msg_control, 0, message->msg_controllen);
  CHECK(recvmsg(ends[1], message, 0) == 7);
  passed = CMSG_FIRSTHDR(message);
  CHECK(passed && passed->cmsg_type == SCM_RIGHTS);
  close(*(int*)CMSG_DATA(passed));
  CHECK(writev(ends[0], parts, 2) == 7 + 2 * kPage);
  parts[0].iov_base = page(), parts[1].iov_base = page();
  CHECK(readv(ends[1], parts, 2) == 7 + 2 * kPage && memcmp(parts[0].iov_base, "seven..", 7) == 0);
  struct stat* const status = page();
  CHECK(stat(path, status) == 0 && S_ISREG(status->st_mode));
  int null = open(across, O_RDWR);
  CHECK(null >= 0 && fstat(null, page()) == 0);
  CHECK(readlink(path, page(), kPage) > 0 && getcwd(page(), kPage) && uname(page()) == 0);
  CHECK(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, value, length) == 0 && *value == SOCK_DGRAM && *length == sizeof(int));
  int* const pair = page();
  CHECK(pipe(pair) == 0 && write(pair[1], memory + 2 * kPage, kPage) == kPage && read(pair[0], memory + 4 * kPage, kPage) == kPage);
  CHECK(memcmp(memory + 2 * kPage, memory + 4 * kPage, kPage) == 0);
  int file = open("/proc/self/exe", O_RDONLY);
  CHECK(pread(file, page(), kPage, 0) == kPage);
  CHECK(nanosleep(moment, page()) == 0 && clock_gettime(CLOCK_REALTIME, page()) == 0);
  sigset_t *const block = page(), *const before = page();
  sigemptyset(block);
  sigaddset(block, SIGUSR2);
  CHECK(sigprocmask(SIG_BLOCK, block, before) == 0 && sigismember(before, SIGRTMIN));
  CHECK(sigaltstack(stack, NULL) == 0 && sigaction(SIGUSR2, action, page()) == 0);
  CHECK(raise(SIGUSR2) == 0 && !handled && sigprocmask(SIG_SETMASK, before, NULL) == 0 && handled);
  // A thread whose stack is there, a child that has a copy of everything, and one that runs a program.
  pthread_attr_t attributes;
  pthread_t later;
  void* result;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstack(&attributes, memory + 3200 * kPage, 64 * kPage) == 0);
  CHECK(pthread_create(&later, &attributes, made_later, of_thread) == 0 && pthread_join(later, &result) == 0 && result == of_thread);
  pid_t child;
  int ended;
  CHECK(posix_spawn(&child, program, NULL, NULL, arguments, environ) == 0 && waitpid(child, &ended, 0) == child && ended == 0);
  child = fork();
  if (child == 0) _exit((unsigned char)memory[(size_t)3500 * kPage] != 3500 / 2 % 251 + 1);
  CHECK(waitpid(child, &ended, 0) == child && ended == 0);
  // All else is as it was.
  for (size_t i = 3500; i < kPages; i += 2) CHECK((unsigned char)memory[i * kPage + i % kPage] == i / 2 % 251 + 1 && memory[(i + 1) * kPage] == 0);
  usleep(200000);
  CHECK(write(pipes[1], "x", 1) == 1 && write(other[1], "abc", 3) == 3 && sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5}) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(waiting[i], NULL) == 0);
  return survived();
}
