// gpuckpt_checkpoint_*, gpuckpt_tag and what a program may ask about itself.
#include <errno.h>
#include <string.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/gpuckpt.h"
#include "snapshot/api/api.h"
#include "snapshot/control/snapshot.h"
#include "snapshot/control/state.h"

// The numbers in the public header are those of the command line.
static_assert(int{GPUCKPT_OK} == gpuckpt::kExitOk && int{GPUCKPT_ERROR} == gpuckpt::kExitError &&
              int{GPUCKPT_ABSENT} == gpuckpt::kExitAbsent &&
              int{GPUCKPT_LOCKED} == gpuckpt::kExitLocked &&
              int{GPUCKPT_REFUSED} == gpuckpt::kExitRefused &&
              int{GPUCKPT_TIMEOUT} == gpuckpt::kExitTimeout);

enum RequestState : uint32_t {
  kFree = 0,
  kClaimed,  // being filled in
  kWaiting,  // for the coordinator
  kServed,   // its snapshot is under way
  kOver,
};

struct gpuckpt_checkpoint {
  std::atomic<uint32_t> state;  // RequestState; futex word
  std::atomic<bool> abandoned;  // no call will ask: free when it is over
  uint64_t order;
  uint64_t timeout_ms;
  char tag[128];
  gpuckpt_result result;
};

namespace gpuckpt {
namespace {

constexpr size_t kRequests = 32;
// The program's requests, which outlive each single attempt: any of its threads asks and waits.
gpuckpt_checkpoint requests[kRequests];
std::atomic<uint64_t> last_order{0};

// 0: no tag, 1: being written, 2: there is one.
std::atomic<uint32_t> tag_state{0};
char next_tag[128];  // for the next snapshot, whatever triggers it

gpuckpt_checkpoint* claim() {
  for (gpuckpt_checkpoint& r : requests) {
    uint32_t expected = kFree;
    if (!r.state.compare_exchange_strong(expected, kClaimed)) continue;
    r.abandoned = false;
    r.order = ++last_order;
    r.timeout_ms = 0;
    r.tag[0] = 0;
    __builtin_memset(&r.result, 0, sizeof(r.result));
    return &r;
  }
  return nullptr;
}

void release(gpuckpt_checkpoint* r) {
  uint32_t over = kOver;
  r->state.compare_exchange_strong(over, kFree);
}

void conclude(gpuckpt_checkpoint* r) {
  r->state = kOver;
  sys::futex_wake(&r->state, 0x7fffffff);
  if (r->abandoned) release(r);
}

void fail(gpuckpt_result* to, int code, const char* text) {
  to->code = code;
  copy(to->text, sizeof(to->text), text);
}

// As much of it as the caller has room for.
void give_result(gpuckpt_result* to, const gpuckpt_result& from) {
  const size_t room = to->size < sizeof(from) ? to->size : sizeof(from);
  if (room <= sizeof(to->size)) return;
  __builtin_memcpy(reinterpret_cast<char*>(to) + sizeof(to->size),
                   reinterpret_cast<const char*>(&from) + sizeof(to->size),
                   room - sizeof(to->size));
}

void give_no_checkpoint(gpuckpt_result* to) {
  gpuckpt_result r;
  __builtin_memset(&r, 0, sizeof(r));
  if (library.ready)
    fail(&r, kExitError, "too many checkpoints were begun and not freed");
  else
    fail(&r, kExitAbsent, library.why_not[0] ? library.why_not : "snapshots are not possible here");
  give_result(to, r);
}

bool set_tag(const char* tag, uint32_t expected) {
  if (!tag_state.compare_exchange_strong(expected, 1)) return false;
  copy(next_tag, sizeof(next_tag), tag);
  tag_state = next_tag[0] ? 2 : 0;
  return true;
}

}  // namespace

bool requests_wait() {
  for (const gpuckpt_checkpoint& r : requests)
    if (r.state == kWaiting) return true;
  return false;
}

bool take_request(Snapshot* s) {
  gpuckpt_checkpoint* oldest = nullptr;
  for (gpuckpt_checkpoint& r : requests)
    if (r.state == kWaiting && (!oldest || r.order < oldest->order)) oldest = &r;
  if (!oldest) return false;
  oldest->state = kServed;
  s->request = oldest;
  copy(s->tag, sizeof(s->tag), oldest->tag);
  if (oldest->timeout_ms) s->timeout_ms = oldest->timeout_ms;
  return true;
}

void finish_request(const Snapshot* s) {
  gpuckpt_checkpoint* r = s->request;
  if (!r) return;
  fail(&r->result, s->code, s->text);
  copy(r->result.id, sizeof(r->result.id), s->id);
  r->result.stall_us = s->stall_us, r->result.total_us = s->total_us;
  r->result.logical_bytes = s->logical_bytes, r->result.new_bytes = s->new_bytes;
  r->result.stored_bytes = s->stored_bytes;
  conclude(r);
}

void take_tag(Snapshot* s) {
  uint32_t there = 2;
  if (s->tag[0] || !tag_state.compare_exchange_strong(there, 1)) return;
  copy(s->tag, sizeof(s->tag), next_tag);
  s->program_tag = true;
  tag_state = 0;
}

void return_tag(const Snapshot* s) {
  if (s->program_tag) set_tag(s->tag, 0);  // unless there is a new one
}

void requests_after_fork() {
  for (gpuckpt_checkpoint& r : requests) {
    if (r.state == kFree || r.state == kOver) continue;
    fail(&r.result, kExitAbsent, "the parent process asked for it");
    conclude(&r);
  }
  tag_state = 0;
}

void requests_after_restore(const char* id) {
  for (gpuckpt_checkpoint& r : requests) {
    if (r.state != kServed) continue;
    r.result.restored = 1;
    copy(r.result.id, sizeof(r.result.id), id);
    conclude(&r);
  }
  if (requests_wait()) library.wanted |= kWantProgram;
}

void api_after_fork() {
  requests_after_fork();
  sections_after_fork();
  hooks_after_fork();
}

void api_after_restore(const char* id) {
  requests_after_restore(id);
  open_sections();
  hooks_after_restore();
}

}  // namespace gpuckpt

using namespace gpuckpt;

GPUCKPT_EXPORT int gpuckpt_present(void) { return library.ready; }
GPUCKPT_EXPORT unsigned gpuckpt_api_version(void) { return GPUCKPT_API_VERSION; }
GPUCKPT_EXPORT unsigned gpuckpt_generation(void) { return library.generation; }

GPUCKPT_EXPORT gpuckpt_checkpoint* gpuckpt_checkpoint_begin(const gpuckpt_options* options) {
  gpuckpt_checkpoint* r = library.ready ? claim() : nullptr;
  if (!r) return nullptr;
  constexpr size_t kTag = offsetof(gpuckpt_options, tag) + sizeof(options->tag);
  constexpr size_t kTimeout = offsetof(gpuckpt_options, timeout_ms) + sizeof(options->timeout_ms);
  if (options && options->size >= kTag && options->tag) copy(r->tag, sizeof(r->tag), options->tag);
  if (options && options->size >= kTimeout) r->timeout_ms = options->timeout_ms;
  r->state = kWaiting;
  if (!wake_coordinator(kWantProgram)) {
    uint32_t waiting = kWaiting;
    if (r->state.compare_exchange_strong(waiting, kClaimed)) {
      fail(&r->result, kExitError, "no thread could be started");
      conclude(r);
    }
  }
  return r;
}

GPUCKPT_EXPORT int gpuckpt_checkpoint_poll(const gpuckpt_checkpoint* r) {
  return !r || r->state == kOver;
}

GPUCKPT_EXPORT int gpuckpt_checkpoint_wait(gpuckpt_checkpoint* r, int64_t timeout_ms,
                                           gpuckpt_result* result) {
  if (!r) {
    if (result) give_no_checkpoint(result);
    return 0;
  }
  const uint64_t begin = sys::now_us();
  const uint64_t patience = timeout_ms < 0 ? 0 : static_cast<uint64_t>(timeout_ms) * 1000;
  for (;;) {
    const uint32_t state = r->state;
    if (state == kOver) break;
    if (inside_section() || inside_hook()) return -EDEADLK;
    const uint64_t waited = sys::now_us() - begin;
    if (timeout_ms >= 0 && waited >= patience) return -ETIMEDOUT;
    sys::futex_wait(&r->state, state, timeout_ms < 0 ? 0 : patience - waited);
  }
  if (result) give_result(result, r->result);
  return 0;
}

GPUCKPT_EXPORT void gpuckpt_checkpoint_free(gpuckpt_checkpoint* r) {
  if (!r) return;
  r->abandoned = true;
  release(r);
}

GPUCKPT_EXPORT int gpuckpt_checkpoint_now(const char* tag, gpuckpt_result* result) {
  if (inside_section() || inside_hook()) return -EDEADLK;
  gpuckpt_options options;
  __builtin_memset(&options, 0, sizeof(options));
  options.size = sizeof(options);
  options.tag = tag;
  gpuckpt_result own;
  own.size = sizeof(own);
  gpuckpt_checkpoint* r = gpuckpt_checkpoint_begin(&options);
  gpuckpt_checkpoint_wait(r, -1, &own);
  gpuckpt_checkpoint_free(r);
  if (result) give_result(result, own);
  return own.code;
}

GPUCKPT_EXPORT int gpuckpt_tag(const char* tag) {
  if (!tag) tag = "";
  if (length(tag) >= sizeof(next_tag)) return -EINVAL;
  return set_tag(tag, 0) || set_tag(tag, 2) ? 0 : -EAGAIN;
}
