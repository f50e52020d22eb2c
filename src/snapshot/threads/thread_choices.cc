#include "snapshot/threads/thread_choices.h"

#include <sys/prctl.h>

#include "base/syscall.h"
#include "snapshot/park/park.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

using process::ThreadChoices;

namespace {

int state_of(long option, long argument) {
  const long value = sys::call(SYS_prctl, option, argument, 0, 0, 0);
  return sys::failed(value) ? 0 : static_cast<int>(value);
}

// A mitigation that threads may switch; of the others the state is the machine's.
int speculation(long what) {
  const int state = state_of(PR_GET_SPECULATION_CTRL, what);
  return state & PR_SPEC_PRCTL ? state : 0;
}

}  // namespace

ThreadChoices own_thread_choices() {
  return {0,
          state_of(PR_MCE_KILL_GET, 0),
          speculation(PR_SPEC_STORE_BYPASS),
          speculation(PR_SPEC_INDIRECT_BRANCH),
          speculation(PR_SPEC_L1D_FLUSH),
          static_cast<uint32_t>(state_of(PR_GET_IO_FLUSHER, 0))};
}

ThreadChoices program_choices() {
  const ParkedThread* t = parking.any_of_program();
  return t ? t->choices : own_thread_choices();
}

void put_thread_choices(Records* r, const ParkedThread& t, const ThreadChoices& common) {
  ThreadChoices own = t.choices;
  own.tid = common.tid;
  // (Of these the Head does not have what the first thread chose.)
  const bool beside_head = own.l1d_flush & PR_SPEC_ENABLE || own.io_flusher;
  if (__builtin_memcmp(&own, &common, sizeof(own)) == 0 && !beside_head) return;
  own.tid = t.tid;
  r->put(process::kRecThreadChoices, own);
}

}  // namespace gpuckpt
