#include "intercept/tests/control.h"

#include "intercept/gate/gate.h"
#include "intercept/gate/refuse.h"
#include "intercept/realm/realm.h"
#include "intercept/translate/translate.h"

namespace gpuckpt {
namespace {

bool close_gate(uint64_t deadline_ns, int* tid, const char** function) {
  GateHolder holder{};
  if (gate_close(deadline_ns, &holder)) return true;
  *tid = holder.tid;
  *function = function_name(holder.function);
  return false;
}

void (*g_establish)(uint32_t, void**);
void set_establish(void (*f)(uint32_t, void**)) {
  g_establish = f;
  gate_establish = [](ThreadRecord* t) { g_establish(t->context_count, t->context); };
}

int records() {
  int n = 0;
  for (ThreadRecord* r = gate_first_thread(); r; r = r->next) n++;
  return n;
}

void bind_stream(void* name, void* now) {
  bind(Kind::kStream, reinterpret_cast<uint64_t>(name), reinterpret_cast<uint64_t>(now));
}

int refusals(const char** names, int room) {
  int n = 0;
  Refusal r;
  for (int i = 0; n < room && (i = refuse_next(i, &r)) >= 0;) names[n++] = r.function;
  return n;
}

}  // namespace
}  // namespace gpuckpt

extern "C" __attribute__((visibility("default"))) const TestControl gpuckpt_test_control = {
    gpuckpt::close_gate,
    gpuckpt::gate_open,
    gpuckpt::gate_closed,
    [] { return gpuckpt::generation(); },
    gpuckpt::gate_new_generation,
    gpuckpt::set_establish,
    gpuckpt::records,
    gpuckpt::realm_rewind,
    gpuckpt::realm_owns,
    gpuckpt::realm_owns_fd,
    gpuckpt::realm_driver_thread,
    gpuckpt::realm_unknown_imports,
    gpuckpt::realm_heap_bytes,
    gpuckpt::realm_heap_high_water,
    gpuckpt::realm_heap_contains,
    gpuckpt::bind_stream,
    gpuckpt::refusals,
    gpuckpt::realm_driver_path,
};
