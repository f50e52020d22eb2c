// cuInit, the environment, injected failures, and the check at each entry point.
#include "driver/base/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "driver/base/error.h"
#include "driver/base/report.h"
#include "driver/context/checkpoint.h"
#include "driver/context/context.h"
#include "driver/memory/pool.h"

namespace simgpu {
namespace {

// The state lies in a page that fork() leaves empty in the child (MADV_WIPEONFORK): there the
// driver is not initialised and cannot be.
struct Root {
  State* state;
};
std::atomic<Root*> root{nullptr};
Mutex init_mutex;

struct FailRule {
  char name[96];
  uint64_t nth;  // 0: every call
  CUresult error;
};
std::vector<FailRule>* fail_rules = nullptr;
std::atomic<int> environment_read{0};
Mutex environment_mutex;

void parse_fail(const char* text) {
  fail_rules = new std::vector<FailRule>;
  char copy[1024];
  snprintf(copy, sizeof copy, "%s", text);
  char* save = nullptr;
  for (char* item = strtok_r(copy, ",", &save); item; item = strtok_r(nullptr, ",", &save)) {
    FailRule rule{};
    rule.error = CUDA_ERROR_OUT_OF_MEMORY;
    char* n = strchr(item, ':');
    if (n) {
      *n++ = 0;
      char* e = strchr(n, ':');
      if (e) {
        *e++ = 0;
        rule.error = error_by_name(e);
      }
      rule.nth = strtoull(n, nullptr, 10);
    }
    snprintf(rule.name, sizeof rule.name, "%s", item);
    fail_rules->push_back(rule);
  }
}

// cuMemAlloc stands for cuMemAlloc_v2 and all its other variants.
bool names(const FailRule& rule, const char* symbol) {
  size_t n = strlen(rule.name);
  if (strncmp(rule.name, symbol, n) != 0) return false;
  const char* rest = symbol + n;
  return *rest == 0 || (rest[0] == '_' && (rest[1] == 'v' || strncmp(rest, "_pt", 3) == 0));
}

CUresult injected(Site& site) {
  uint64_t call = site.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const FailRule& rule : *fail_rules)
    if (names(rule, site.name) && (rule.nth == 0 || rule.nth == call)) return rule.error;
  return CUDA_SUCCESS;
}

void read_environment() {
  Lock lock(environment_mutex);
  if (environment_read.load() != 0) return;
  const char* fail = getenv("SIMGPU_FAIL");
  if (fail && *fail != 0) parse_fail(fail);
  environment_read.store(1, std::memory_order_release);
}

uint64_t bytes_of(const char* text, uint64_t otherwise) {
  if (!text || *text == 0) return otherwise;
  char* end;
  double v = strtod(text, &end);
  switch (*end) {
    case 'T':
    case 't':
      v *= 1024;
      [[fallthrough]];
    case 'G':
    case 'g':
      v *= 1024;
      [[fallthrough]];
    case 'M':
    case 'm':
      v *= 1024;
      [[fallthrough]];
    case 'K':
    case 'k':
      v *= 1024;
      break;
    default:
      break;
  }
  return v >= 1 ? static_cast<uint64_t>(v) : otherwise;
}

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text && *text != 0 ? strtoull(text, nullptr, 0) : otherwise;
}

// Registered at cuInit, so it runs before the exit handlers of libraries that were loaded earlier:
// from here on calls return CUDA_ERROR_DEINITIALIZED, and running work is told to stop but not
// waited for.
void at_exit() {
  State* s = state();
  if (!s || s->exiting.exchange(true)) return;
  {
    Lock lock(s->live_mutex);
    for (Context* c : s->live) c->cancel.store(true);
  }
  write_report();
}

void unused_destructor(void*) {}

__attribute__((constructor)) void at_load() {
  make_thread_key();
  // The real driver registers one exit handler at load, too.
  atexit([] {});
}

}  // namespace

void read_options(Options* o) {
  uint64_t devices = number_of("SIMGPU_DEVICES", 1);
  o->devices = devices < 1 ? 1 : devices > 8 ? 8 : static_cast<int>(devices);
  o->memory = round_up(bytes_of(getenv("SIMGPU_MEMORY"), 80 * kGiB), kBigPage);
  const char* last = getenv("SIMGPU_LAST_MEMORY");
  if (last) o->last_memory = round_up(bytes_of(last, 0), kBigPage);
  o->seed = number_of("SIMGPU_SEED", 0);
  o->sm = static_cast<int>(number_of("SIMGPU_SM", 120));
  o->threads = static_cast<unsigned>(number_of("SIMGPU_THREADS", 0));
  const char* slow = getenv("SIMGPU_SLOW_COPY");
  o->slow_copy = slow ? strtod(slow, nullptr) : 0;
  o->lost = number_of("SIMGPU_LOST", 0);
  o->part = static_cast<unsigned>(number_of("SIMGPU_PART", 0));
  o->ignore_hints = number_of("SIMGPU_IGNORE_HINTS", 0) != 0;
}

State* state() {
  Root* r = root.load(std::memory_order_acquire);
  return r ? r->state : nullptr;
}

CUresult initialise() {
  Root* r = root.load(std::memory_order_acquire);
  if (r) return r->state ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  Lock lock(init_mutex);
  if (root.load()) return CUDA_SUCCESS;
  usleep(static_cast<useconds_t>(number_of("SIMGPU_SLOW_INIT", 0) * 1000));

  auto* page = static_cast<Root*>(
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (page == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(page, kPage, MADV_WIPEONFORK);

  auto* s = new State;
  read_options(&s->options);
  s->libraries.start(s->options.seed);
  uint64_t entropy = 0;
  if (getrandom(&entropy, sizeof entropy, 0) < 0) entropy = now_ns();
  s->random = Random(s->options.seed * 0x2545f4914f6cdd1dull ^ entropy);
  s->next_id.store(s->random.below(1u << 30) + 1);
  for (int i = 0; i < 3; ++i) {  // as many keys as the real driver takes here
    pthread_key_t key;
    pthread_key_create(&key, i == 0 ? unused_destructor : nullptr);
  }
  atexit(at_exit);
  atexit([] {});
  unsigned threads = s->options.threads;
  if (threads == 0) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    threads = cores < 1 ? 1 : static_cast<unsigned>(cores);
  }
  page->state = s;
  root.store(page, std::memory_order_release);
  waste_some(256);  // so that addresses of the heap differ from process to process
  const std::vector<int> gpus = visible_gpus(getenv("CUDA_VISIBLE_DEVICES"), s->options.devices);
  for (int gpu : gpus)
    s->devices.push_back(new Device(static_cast<int>(s->devices.size()), gpu, s->options));
  for (Device* d : s->devices) make_default_pool(d);
  s->pool = ptx::create_pool(threads);
  return CUDA_SUCCESS;
}

CUresult enter(Site& site, unsigned needs) {
  if (environment_read.load(std::memory_order_acquire) == 0) read_environment();
  if ((needs & kInitialised) != 0) {
    State* s = state();
    if (!s) return CUDA_ERROR_NOT_INITIALIZED;
    if (s->exiting.load(std::memory_order_relaxed)) return CUDA_ERROR_DEINITIALIZED;
    if ((needs & kCallbackAllowed) == 0) {
      ThreadState* t = thread_if_known();
      if (t && t->in_callback) return CUDA_ERROR_NOT_PERMITTED;
    }
    if ((needs & kWhileLocked) == 0) wait_while_locked();
  }
  if (fail_rules) {
    CUresult r = injected(site);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

void waste_some(uint64_t blocks) {
  State* s = state();
  static std::atomic<uint64_t> wasted{0};
  for (uint64_t i = s->random_below(blocks); i > 0 && wasted.load() < 4 * kMiB; --i) {
    size_t size = 16 + s->random_below(1008);
    wasted.fetch_add(size);
    void* volatile kept = malloc(size);
    (void)kept;
  }
}

void* shuffled_malloc(size_t n) {
  if (state()) waste_some(4);
  return ::operator new(n);
}

uint64_t fresh_id() {
  State* s = state();
  return s->next_id.fetch_add(1 + s->random_below(7));
}

void* Object::operator new(size_t n) { return shuffled_malloc(n); }
void Object::operator delete(void* p) { ::operator delete(p); }

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuInit(unsigned flags) {
  SIMGPU_ENTER_WITH("cuInit", kNothing);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return initialise();
}

SIMGPU_API cuDriverGetVersion(int* version) {
  SIMGPU_ENTER_WITH("cuDriverGetVersion", kNothing);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
