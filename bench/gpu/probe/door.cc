// LD_PRELOADed with the SONAME libcuda.so.1: every driver call passes here (probe only: no product
// code).
//
// The stubs (door_stubs.S, generated from the names the real driver exports) come to door_enter
// with their number. It counts, notes the call for the realm, swaps the caller's return address so
// that the end of the call is seen as well, and jumps to the driver with registers and stack as
// they were. cuGetProcAddress answers with our stubs; cuGetExportTable is handed through untouched.
//   PROBE_ISOLATE=1   rewrite the driver's imports (realm.h), private heap
//   PROBE_REPORT=F    write what was seen to F when probe_report() is called, to F.exit at exit
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "evidence.h"
#include "realm.h"

extern "C" {
extern const char* const door_names[];
extern void* const door_stubs[];
extern const int door_count;
void door_return();
}

namespace {

constexpr int kMax = 2048;
void* g_real[kMax];
std::atomic<uint64_t> g_calls[kMax];
std::atomic<int> g_loading{0};
void* g_driver;
char g_tables[64][33];
std::atomic<int> g_table_count{0};

struct Frame {
  void* back;
  int call;
};
constexpr int kDepth = 64;
thread_local Frame t_frames[kDepth] __attribute__((tls_model("initial-exec")));
thread_local int t_depth __attribute__((tls_model("initial-exec"))) = 0;

int current_call() { return t_depth ? t_frames[t_depth - 1].call : -1; }
const char* call_name(int call) { return door_names[call]; }

bool load() {
  int idle = 0;
  if (g_loading.compare_exchange_strong(idle, 1)) {
    const char* isolate = getenv("PROBE_ISOLATE");
    probe::realm_current_call = current_call;
    probe::realm_call_name = call_name;
    const char* path = probe::find_driver();
    if (isolate && *isolate == '1') {
      g_driver = probe::realm_load(path, {});
    } else {
      g_driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!g_driver) fprintf(stderr, "probe: no driver (%s)\n", path);
    for (int i = 0; g_driver && i < door_count; ++i) g_real[i] = dlsym(g_driver, door_names[i]);
    g_loading = 2;
  }
  while (g_loading != 2) {
  }
  return g_driver;
}

int index_of(const char* name) {
  for (int i = 0; i < door_count; ++i)
    if (strcmp(door_names[i], name) == 0) return i;
  return -1;
}

int missing() { return 500; }  // CUDA_ERROR_NOT_FOUND

// The stub for what the driver answered. Several names may share an address: prefer the one asked
// for.
void* stub_for(const char* name, void* real) {
  void* any = nullptr;
  size_t length = strlen(name);
  for (int i = 0; i < door_count; ++i)
    if (g_real[i] == real) {
      if (strncmp(door_names[i], name, length) == 0) return door_stubs[i];
      any = door_stubs[i];
    }
  return any ? any : real;
}

using GetProcAddress = int (*)(const char*, void**, int, uint64_t);
using GetProcAddress2 = int (*)(const char*, void**, int, uint64_t, int*);
using GetExportTable = int (*)(const void**, const unsigned char*);

int get_proc_address(const char* name, void** pfn, int version, uint64_t flags) {
  int rc = reinterpret_cast<GetProcAddress>(g_real[index_of("cuGetProcAddress")])(name, pfn,
                                                                                  version, flags);
  if (rc == 0 && pfn && *pfn) *pfn = stub_for(name, *pfn);
  return rc;
}
int get_proc_address2(const char* name, void** pfn, int version, uint64_t flags, int* status) {
  int rc = reinterpret_cast<GetProcAddress2>(g_real[index_of("cuGetProcAddress_v2")])(
      name, pfn, version, flags, status);
  if (rc == 0 && pfn && *pfn) *pfn = stub_for(name, *pfn);
  return rc;
}
int get_export_table(const void** table, const unsigned char* uuid) {
  int i = g_table_count++;
  if (i < 64)
    for (int k = 0; k < 16; ++k) sprintf(g_tables[i] + 2 * k, "%02x", uuid[k]);
  return reinterpret_cast<GetExportTable>(g_real[index_of("cuGetExportTable")])(table, uuid);
}

void* target(int i) {
  if (!load()) return reinterpret_cast<void*>(missing);
  if (!g_real[i]) return reinterpret_cast<void*>(missing);
  const char* name = door_names[i];
  if (name[2] == 'G' && name[3] == 'e') {
    if (strcmp(name, "cuGetProcAddress") == 0) return reinterpret_cast<void*>(get_proc_address);
    if (strcmp(name, "cuGetProcAddress_v2") == 0) return reinterpret_cast<void*>(get_proc_address2);
    if (strcmp(name, "cuGetExportTable") == 0) return reinterpret_cast<void*>(get_export_table);
  }
  return g_real[i];
}

void report(const char* suffix) {
  const char* path = getenv("PROBE_REPORT");
  if (!path || !g_driver) return;  // not in children that never came near the driver
  char name[4096];
  snprintf(name, sizeof name, "%s%s", path, suffix);
  FILE* out = fopen(name, "w");
  if (!out) return;
  fprintf(out, "{\"calls\": {");
  bool first = true;
  for (int i = 0; i < door_count; ++i)
    if (g_calls[i]) {
      fprintf(out, "%s\"%s\": %lu", first ? "" : ", ", door_names[i], g_calls[i].load());
      first = false;
    }
  fprintf(out, "},\n\"export_tables\": [");
  for (int i = 0; i < g_table_count && i < 64; ++i)
    fprintf(out, "%s\"%s\"", i ? ", " : "", g_tables[i]);
  fprintf(out, "],\n\"realm\": ");
  const char* isolate = getenv("PROBE_ISOLATE");
  if (g_driver && isolate && *isolate == '1')
    probe::realm_report(out);
  else
    fprintf(out, "null");
  fprintf(out, "}\n");
  fclose(out);
}
__attribute__((destructor)) void report_at_exit() { report(".exit"); }

}  // namespace

// So early that a crash in any constructor after ours is seen.
__attribute__((constructor)) static void watch() { probe::evidence_install(); }
extern "C" __attribute__((visibility("default"))) void probe_evidence(const char* stage) {
  probe::evidence_dump(stage, 60);
}

// What is live now; a program calls it through dlsym before it ends.
extern "C" __attribute__((visibility("default"))) void probe_report() { report(""); }

extern "C" __attribute__((visibility("default"))) void probe_rewind() {
  t_depth = 0;
  probe::realm_rewind();
}
extern "C" __attribute__((visibility("default"))) uint64_t probe_heap_used() {
  return probe::realm_heap_used();
}

extern "C" void* door_enter(int i, void** back) {
  void* to = target(i);
  g_calls[i]++;
  probe::evidence_note("driver call", door_names[i], 0, 0, 0, 0, 0, nullptr);
  if (t_depth < kDepth) {
    t_frames[t_depth++] = {*back, i};
    *back = reinterpret_cast<void*>(door_return);
  }
  return to;
}
extern "C" void* door_leave() { return t_frames[--t_depth].back; }
