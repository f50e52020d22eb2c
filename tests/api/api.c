// api CASE: a program that uses the public interface; api_test.py runs it with and without gpuckpt,
// and restores it. Prints "ok" for what held, and ends with 0.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpuckpt/gpuckpt.h"

#define CHECK(c) ((c) ? (void)0 : failed(__LINE__, #c))
static void failed(int line, const char* what) {
  printf("line %d: %s (errno %d)\n", line, what, errno);
  fflush(stdout);
  _exit(1);
}
static void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&t, &t)) {
  }
}
static void say(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}
// Until the test lets it go on: by a file, so that it works across a restore.
static void await(const char* name) {
  for (int i = 0; access(name, F_OK); ++i) CHECK(i < 6000), sleep_ms(10);
}

static gpuckpt_result now(const char* tag) {
  gpuckpt_result r = {.size = sizeof(r)};
  CHECK(gpuckpt_checkpoint_now(tag, &r) == r.code);
  return r;
}

// --- nothing is there

static void hook_that_must_not_run(void* unused) {
  (void)unused;
  say("a hook ran");
  _exit(1);
}

static int inert(void) {
  gpuckpt_result r = {.size = sizeof(r)};
  CHECK(gpuckpt_present() == 0 && gpuckpt_generation() == 0 && gpuckpt_api_version() == 0);
  CHECK(gpuckpt_checkpoint_begin(NULL) == NULL && gpuckpt_checkpoint_poll(NULL) == 1);
  CHECK(gpuckpt_checkpoint_wait(NULL, -1, &r) == 0 && r.code == GPUCKPT_ABSENT && r.text[0]);
  gpuckpt_checkpoint_free(NULL);
  CHECK(gpuckpt_checkpoint_now("tag", NULL) == GPUCKPT_ABSENT);
  gpuckpt_enter("section"), CHECK(gpuckpt_leave() == 0);
  CHECK(gpuckpt_on_snapshot(hook_that_must_not_run, NULL) == 0);
  CHECK(gpuckpt_remove_hook(0) == 0 && gpuckpt_tag("t") == 0);
  CHECK(gpuckpt_exclude(&r, sizeof(r)) == 0 && gpuckpt_include(&r, sizeof(r)) == 0);
  return 0;
}

// --- checkpoints: one waited for, two begun at once, one that fails, one of a child, a short
// struct

static int checkpoint(void) {
  CHECK(gpuckpt_present() == 1 && gpuckpt_api_version() == GPUCKPT_API_VERSION);
  CHECK(gpuckpt_generation() == 0);
  gpuckpt_options o = {.size = sizeof(o), .tag = "first"};
  gpuckpt_checkpoint* a = gpuckpt_checkpoint_begin(&o);
  o.tag = "second";
  gpuckpt_checkpoint* b = gpuckpt_checkpoint_begin(&o);
  gpuckpt_result r = {.size = sizeof(r)}, s = {.size = sizeof(s)};
  CHECK(a && b && a != b);
  CHECK(gpuckpt_checkpoint_wait(b, 0, &s) == -ETIMEDOUT && !gpuckpt_checkpoint_poll(b));
  CHECK(gpuckpt_checkpoint_wait(a, -1, &r) == 0 && gpuckpt_checkpoint_wait(b, 60000, &s) == 0);
  CHECK(r.code == 0 && s.code == 0 && r.id[0] && s.id[0] && strcmp(r.id, s.id) != 0);
  CHECK(!r.restored && r.logical_bytes > 0 && r.total_us >= r.stall_us && !r.text[0]);
  CHECK(gpuckpt_checkpoint_poll(a) && gpuckpt_checkpoint_poll(b));
  gpuckpt_checkpoint_free(a), gpuckpt_checkpoint_free(b);

  CHECK(gpuckpt_tag("third") == 0);
  r = now(NULL);
  CHECK(r.code == 0);
  CHECK(now(NULL).code == 0);  // the tag is used up

  gpuckpt_result small = {.size = offsetof(gpuckpt_result, id)};
  CHECK(gpuckpt_checkpoint_now("small", &small) == 0 && small.code == 0 && !small.id[0]);

  // The slots are there again and again, also those of checkpoints that no thread waited for.
  gpuckpt_checkpoint* many[40];
  int n = 0;
  while (n < 40 && (many[n] = gpuckpt_checkpoint_begin(NULL))) ++n;
  CHECK(n == 32);
  CHECK(gpuckpt_checkpoint_wait(NULL, 0, &s) == 0 && s.code == GPUCKPT_ERROR && s.text[0]);
  pid_t child = fork();
  if (child == 0) {
    CHECK(gpuckpt_checkpoint_wait(many[31], -1, &s) == 0 && s.code == GPUCKPT_ABSENT);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int i = 0; i < n; ++i) gpuckpt_checkpoint_free(many[i]);
  return 0;  // the program ends although snapshots wait
}

// --- the program restores where it asked

static int restored(void) {
  gpuckpt_result r = now("here");
  if (!r.restored) {
    CHECK(r.code == 0 && gpuckpt_generation() == 0);
    say("durable");
    for (;;) pause();
  }
  CHECK(r.code == 0 && r.id[0] && gpuckpt_generation() == 1);
  printf("restored from %s\n", r.id);
  r = now("again");  // and a restored process takes its own
  CHECK(r.code == 0 && (r.restored ? gpuckpt_generation() == 2 : gpuckpt_generation() == 1));
  if (!r.restored) {
    say("durable again");
    for (;;) pause();
  }
  return 0;
}

// --- critical sections

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static volatile long left, right;

static void* writer(void* unused) {
  (void)unused;
  while (!stop) {
    gpuckpt_enter("two halves");
    gpuckpt_enter("nested");
    const unsigned generation = gpuckpt_generation();
    ++left;
    sleep_ms(1);
    CHECK(gpuckpt_leave() == 0);
    ++right;
    CHECK(gpuckpt_generation() == generation);  // no restore happened in the middle of it
    CHECK(gpuckpt_leave() == 0);
  }
  return NULL;
}

static int sections(void) {
  CHECK(gpuckpt_leave() == -EPERM);
  gpuckpt_enter("outer");
  CHECK(gpuckpt_checkpoint_now(NULL, NULL) == -EDEADLK);
  gpuckpt_options o = {.size = sizeof(o), .timeout_ms = 700};
  gpuckpt_checkpoint* c = gpuckpt_checkpoint_begin(&o);
  CHECK(gpuckpt_checkpoint_wait(c, -1, NULL) == -EDEADLK);
  // It gives up and names the process or thread that prevented it.
  gpuckpt_result r = {.size = sizeof(r)};
  while (!gpuckpt_checkpoint_poll(c)) sleep_ms(5);
  CHECK(gpuckpt_checkpoint_wait(c, -1, &r) == 0 && r.code == GPUCKPT_TIMEOUT);
  CHECK(strstr(r.text, "\"outer\""));
  gpuckpt_checkpoint_free(c);
  CHECK(gpuckpt_leave() == 0 && gpuckpt_leave() == -EPERM);

  // Begun inside, taken after.
  gpuckpt_enter("brief");
  c = gpuckpt_checkpoint_begin(NULL);
  sleep_ms(50);
  CHECK(!gpuckpt_checkpoint_poll(c) && gpuckpt_leave() == 0);
  CHECK(gpuckpt_checkpoint_wait(c, 30000, &r) == 0 && r.code == 0);
  gpuckpt_checkpoint_free(c);

  pthread_t t[4];
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&t[i], NULL, writer, NULL) == 0);
  for (int i = 0; i < 3; ++i) {
    r = now(NULL);
    CHECK(r.code == 0);
  }
  stop = 1;
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(t[i], NULL) == 0);
  return 0;
}

static void* ends_inside(void* unused) {
  gpuckpt_enter("abandoned");
  return unused;
}

// A snapshot comes from outside while a section is passed through all the time, and a thread has
// ended inside one.
static int untorn(void) {
  pthread_t t;
  CHECK(pthread_create(&t, NULL, ends_inside, NULL) == 0 && pthread_join(t, NULL) == 0);
  CHECK(pthread_create(&t, NULL, writer, NULL) == 0);
  unsigned before = gpuckpt_generation();
  long first = left;
  say("ready");
  while (gpuckpt_generation() == before) sleep_ms(1);
  await("go_on");
  stop = 1;
  CHECK(pthread_join(t, NULL) == 0 && left == right && left > first);
  return 0;
}

// --- hooks

static char order[256];
static pthread_t hook_thread;
static int connection = 7;
static void note(void* what) {
  if (!order[0]) hook_thread = pthread_self();
  CHECK(pthread_equal(hook_thread, pthread_self()) || order[0] == 'e');
  strcat(order, what);
}
static void lock_hook(void* what) {
  note(what);
  pthread_mutex_lock(&mutex);
  connection = -1;  // what cannot be saved is not there during the snapshot
  free(malloc(100));
}
static void unlock_hook(void* what) {
  note(what);
  connection = gpuckpt_generation() ? 8 : 7;
  pthread_mutex_unlock(&mutex);
}
static void slow_hook(void* ms) {
  CHECK(gpuckpt_checkpoint_now(NULL, NULL) == -EDEADLK);
  sleep_ms((long)ms);
}

static int hooks(void) {
  CHECK(gpuckpt_on_snapshot(NULL, NULL) == -EINVAL && gpuckpt_remove_hook(12345) == -ENOENT);
  int numbers[] = {
      gpuckpt_on_snapshot(note, "b"),      gpuckpt_on_snapshot(lock_hook, "a"),
      gpuckpt_on_resume(unlock_hook, "c"), gpuckpt_on_resume(note, "d"),
      gpuckpt_on_restore(note, "R"),       gpuckpt_on_restore(unlock_hook, "S"),
  };
  for (int i = 0; i < 6; ++i) CHECK(numbers[i] > 0);
  CHECK(now("with hooks").code == 0);
  for (int i = 0; strlen(order) < 4; ++i) CHECK(i < 3000), sleep_ms(10);
  pthread_mutex_lock(&mutex);
  // This program is restored from here, too: then the hooks were others.
  if (gpuckpt_generation() == 0) {
    CHECK(strcmp(order, "abcd") == 0 && connection == 7);
    pthread_mutex_unlock(&mutex);
    say("durable");
    for (;;) pause();
  }
  CHECK(strcmp(order, "abRS") == 0 && connection == 8);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < 6; ++i) CHECK(gpuckpt_remove_hook(numbers[i]) == 0);
  order[0] = 0;
  CHECK(now("without").code == 0 && !order[0]);
  // One that is too slow fails the snapshot and not the program; the other half still runs.
  int slow = gpuckpt_on_snapshot(slow_hook, (void*)1500);
  gpuckpt_on_resume(note, "e");
  gpuckpt_options o = {.size = sizeof(o), .timeout_ms = 500};
  gpuckpt_checkpoint* c = gpuckpt_checkpoint_begin(&o);
  gpuckpt_result r = {.size = sizeof(r)};
  CHECK(gpuckpt_checkpoint_wait(c, -1, &r) == 0 && r.code == GPUCKPT_TIMEOUT &&
        strstr(r.text, "hook"));
  gpuckpt_checkpoint_free(c);
  CHECK(gpuckpt_remove_hook(slow) == 0 && now("after").code == 0);
  for (int i = 0; strlen(order) < 2; ++i) CHECK(i < 3000), sleep_ms(10);
  CHECK(strcmp(order, "ee") == 0);
  return 0;
}

// --- memory

static int memory(void) {
  const size_t n = 8 << 20;
  char* cache = mmap(NULL, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* kept = malloc(n);
  unsigned x = 1;
  for (size_t i = 0; i < n; ++i)
    cache[i] = kept[i] = (char)((x = x * 1664525u + 1013904223u) >> 24);
  gpuckpt_result with = now("with");
  // Not page by page: half a page at each end stays saved.
  CHECK(gpuckpt_exclude(cache + 100, 200) == -EINVAL);
  CHECK(gpuckpt_exclude(NULL, 1 << 20) == -ENOMEM && gpuckpt_include(cache, n) == -ENOENT);
  CHECK(gpuckpt_exclude(cache + 100, n - 200) == 0);
  gpuckpt_result r = now("without");
  CHECK(with.code == 0 && r.code == 0);
  CHECK(r.logical_bytes + n - 16384 < with.logical_bytes + (1 << 20));
  if (!r.restored) {
    CHECK(cache[n / 2] == kept[n / 2]);
    say("durable");
    for (;;) pause();
  }
  CHECK(memcmp(cache, kept, 4096) == 0 && memcmp(cache + n - 4096, kept + n - 4096, 4096) == 0);
  for (size_t i = 4096; i < n - 4096; ++i) CHECK(cache[i] == 0);
  memcpy(cache, kept, n);
  CHECK(now("still without").code == 0 && cache[n / 2] == kept[n / 2]);
  // Included again without having been written since: all of it must be in the next one.
  CHECK(gpuckpt_include(cache + 100, n - 200) == 0);
  r = now("with again");
  CHECK(r.code == 0);
  if (!r.restored) {
    say("durable again");
    for (;;) pause();
  }
  CHECK(memcmp(cache, kept, n) == 0);
  return 0;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(void);
  } cases[] = {{"inert", inert},       {"checkpoint", checkpoint}, {"restored", restored},
               {"sections", sections}, {"untorn", untorn},         {"hooks", hooks},
               {"memory", memory}};
  for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); ++i)
    if (strcmp(argv[1], cases[i].name) == 0) {
      int status = cases[i].run();
      say("ok");
      return status;
    }
  return 2;
}
