// Experiment 4: in a forked child, is the driver put back to its pristine state a fresh driver?
// usage: rewind loaded|init|context|kernel [keep] [clean]
//   how far the parent goes before the fork; keep: the driver's mappings stay; clean: the old heap
//   is not overwritten
#include <signal.h>
#include <sys/wait.h>

#include "api.h"
#include "realm.h"

static CUcontext go(Api& api, int depth) {
  CUdevice device = 0;
  CUcontext context = nullptr, again = nullptr;
  if (depth < 1) return nullptr;
  if (STEP("cuInit", api.cuInit(0))) return nullptr;
  stage("\"stage\": \"heap\", \"used\": %lu", probe::realm_heap_used());
  if (depth < 2) return nullptr;
  if (STEP("device", api.cuDeviceGet(&device, 0))) return nullptr;
  if (STEP("context", api.cuDevicePrimaryCtxRetain(&context, device))) return nullptr;
  if (STEP("current", api.cuCtxSetCurrent(context))) return nullptr;
  api.cuCtxGetCurrent(&again);
  stage("\"stage\": \"context value\", \"value\": \"%p\", \"current\": \"%p\", \"heap\": %lu",
        (void*)context, (void*)again, probe::realm_heap_used());
  if (depth >= 3) try_kernel(api);
  return context;
}

int main(int argc, char** argv) {
  probe::evidence_install();
  const char* const depths[] = {"loaded", "init", "context", "kernel"};
  int depth = 3;
  probe::RealmOptions options;
  for (int i = 1; i < argc; ++i) {
    for (int d = 0; d < 4; ++d)
      if (!strcmp(argv[i], depths[d])) depth = d;
    if (!strcmp(argv[i], "keep")) options.unmap = false;
    if (!strcmp(argv[i], "clean")) options.scribble = false;
  }
  void* handle = probe::realm_load(probe::find_driver(), options);
  if (!handle) {
    stage("\"stage\": \"no driver\"");
    return 3;
  }
  Api api;
  api.bind(handle);
  int version = 0;
  api.cuDriverGetVersion(&version);
  stage("\"stage\": \"loaded\", \"rc\": 0, \"version\": %d", version);
  CUcontext before = go(api, depth);
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    alarm(25);  // says where it is and ends
    stage("\"stage\": \"child\"");
    probe::realm_rewind();
    stage("\"stage\": \"rewound\"");
    CUcontext after = go(api, 3);
    stage("\"stage\": \"compare\", \"before\": \"%p\", \"after\": \"%p\", \"same\": %s",
          (void*)before, (void*)after,
          depth < 2 || !before ? "null"
          : before == after    ? "true"
                               : "false");
    stage("\"stage\": \"exit\"");
    exit(0);  // exit handlers of both generations run here
  }
  int status = 0;
  waitpid(child, &status, 0);
  stage("\"stage\": \"child ended\", \"status\": %d, \"signal\": %d",
        WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  if (depth >= 2) {  // the parent must be unharmed
    stage("\"stage\": \"parent after\", \"rc\": %d", (int)api.cuCtxSynchronize());
  }
  if (const char* path = getenv("PROBE_REPORT"))
    if (FILE* out = fopen(path, "w")) {
      probe::realm_report(out);
      fclose(out);
    }
  exit(0);
}
