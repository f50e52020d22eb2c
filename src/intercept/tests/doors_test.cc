// doors_test HOW FAKE_DRIVER_PATH: every way a program reaches the driver ends at our functions.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <string>

#include "check.h"
#include "control.h"

// The file that holds an address.
static std::string owner(void* p) {
  Dl_info info;
  CHECK(p && dladdr(p, &info));
  return info.dli_fname;
}
#define opened(file, mode)        \
  ([&] {                          \
    void* h = dlopen(file, mode); \
    CHECK(h);                     \
    return h;                     \
  }())
static void is_ours(void* handle) {
  for (const char* name :
       {"cuInit", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cuGetProcAddress_v2"}) {
    CHECK(owner(dlsym(handle, name)).find("gpuckpt_doors") != std::string::npos);
  }
  auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(handle, "cuInit"));
  CHECK(init(0) == CUDA_SUCCESS);
}

static int generic(void* us, const TestControl* control) {
  // Exported, but not in cuda.h: thunks. A question does no harm; what makes an object is refused.
  auto vdpau = reinterpret_cast<int (*)(int)>(dlsym(us, "cuVDPAUGetDevice"));
  auto gl = reinterpret_cast<int (*)(int)>(dlsym(us, "cuGraphicsGLRegisterBuffer"));
  const char* names[8];
  CHECK(vdpau(41) == 42);
  CHECK(control->refusals(names, 8) == 0);
  CHECK(gl(42) == 43);
  CHECK(control->refusals(names, 8) == 1 && !strcmp(names[0], "cuGraphicsGLRegisterBuffer"));
  // Known only to the driver.
  auto get = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(us, "cuGetProcAddress_v2"));
  void *f = nullptr, *again = nullptr;
  CHECK(get("cuNotInTheSpec", &f, 13000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(get("cuNotInTheSpec", &again, 13000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(f == again && owner(f).find("gpuckpt_doors") != std::string::npos);
  CHECK(reinterpret_cast<int (*)(int, int)>(f)(6, 7) == 42);
  CHECK(control->refusals(names, 8) == 2 && !strcmp(names[1], "cuNotInTheSpec"));
  // Refuse rows count live objects.
  auto create =
      reinterpret_cast<decltype(&cuImportExternalMemory)>(dlsym(us, "cuImportExternalMemory"));
  auto destroy =
      reinterpret_cast<decltype(&cuDestroyExternalMemory)>(dlsym(us, "cuDestroyExternalMemory"));
  CUexternalMemory memory = nullptr;
  CHECK(create(&memory, nullptr) == CUDA_SUCCESS);
  CHECK(control->refusals(names, 8) == 3 && !strcmp(names[0], "cuImportExternalMemory"));
  CHECK(destroy(memory) == CUDA_SUCCESS);
  CHECK(control->refusals(names, 8) == 2);
  return 0;
}

static int proc_address(void* us, const char* driver) {
  // Every answer of the driver comes back as our function of the same symbol.
  auto get = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(us, "cuGetProcAddress_v2"));
  void* real = dlopen(driver, RTLD_NOW);  // comes back as us: ask by another name
  CHECK(real == us);
  int asked = 0;
  auto expect = [&](const char* base, int version, int flags, const char* symbol) {
    void* f = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CHECK(get(base, &f, version, static_cast<cuuint64_t>(flags), &status) == CUDA_SUCCESS);
    void* wanted = symbol ? dlsym(us, symbol) : nullptr;
    if (f != wanted) {
      Dl_info info{};
      if (f) dladdr(f, &info);
      fprintf(stderr, "%s@%d/%d: got %s, wanted %s\n", base, version, flags, info.dli_sname,
              symbol ? symbol : "nothing");
      exit(1);
    }
    asked++;
  };
  expect("cuMemAlloc", 2000, 0, "cuMemAlloc");
  expect("cuMemAlloc", 3019, 0, "cuMemAlloc");
  expect("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
  expect("cuMemAlloc", 99000, 1, "cuMemAlloc_v2");
  expect("cuMemcpyHtoDAsync", 3020, 0, "cuMemcpyHtoDAsync_v2");
  expect("cuMemcpyHtoDAsync", 7000, 2, "cuMemcpyHtoDAsync_v2_ptsz");
  expect("cuMemcpyHtoDAsync", 6050, 2, nullptr);
  expect("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
  expect("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
  expect("cuInit", 2000, 2, "cuInit");
  expect("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
  expect("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
  expect("", 0, 0, nullptr);
  expect("cuMemAlloc_v2", 13000, 0, nullptr);
  expect("cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz");
  // The whole table of the spec.
  FILE* f = fopen(GPUCKPT_SPEC, "r");
  CHECK(f);
  char line[4096];
  CHECK(fgets(line, sizeof line, f));
  while (fgets(line, sizeof line, f)) {
    char* at = line;
    char* symbol = strsep(&at, ",");
    char* base = strsep(&at, ",");
    int version = atoi(strsep(&at, ","));
    char* flag = strsep(&at, ",");
    if (version) expect(base, version, strcmp(flag, "PTDS") == 0 ? 2 : 0, symbol);
  }
  fclose(f);
  CHECK(asked > 600);
  return 0;
}

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  const std::string how = argv[1], driver = argv[2];
  auto* control = static_cast<const TestControl*>(dlsym(RTLD_DEFAULT, "gpuckpt_test_control"));
  CHECK(control);
  CHECK(control->driver_path()[0] == 0);  // nothing is loaded at start
  if (how == "plain") {
    is_ours(RTLD_DEFAULT);
    CHECK(driver == control->driver_path());
  } else if (how == "soname") {
    is_ours(opened("libcuda.so.1", RTLD_NOW));
  } else if (how == "deepbind") {
    is_ours(opened("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND));
    is_ours(opened("libcuda.so", RTLD_NOW | RTLD_DEEPBIND));
  } else if (how == "linkname") {
    is_ours(opened("libcuda.so", RTLD_LAZY));
  } else if (how == "absolute") {
    is_ours(opened("/usr/lib/x86_64-linux-gnu/libcuda.so.1", RTLD_NOW));
    is_ours(opened("/opt/driver/libcuda.so.550.54.14", RTLD_NOW));
    CHECK(!dlopen("/opt/driver/libcudart.so", RTLD_NOW));
  } else if (how == "dlsym") {
    void* self = dlopen(nullptr, RTLD_NOW);
    is_ours(self);
    void* us = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(dlvsym(us, "cuInit", "NO_SUCH") == nullptr);
  } else if (how == "generic") {
    return generic(dlopen("libcuda.so.1", RTLD_NOW), control);
  } else if (how == "proc_address") {
    return proc_address(dlopen("libcuda.so.1", RTLD_NOW), "/any/libcuda.so.1");
  } else if (how == "cpu_only") {
    // No driver on the machine: as without us.
    unsetenv("GPUCKPT_DRIVER");
    unsetenv("LD_LIBRARY_PATH");
    CHECK(!dlopen("libcuda.so.1", RTLD_NOW));
    CHECK(strstr(dlerror(), "cannot open shared object file: No such file"));
    auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(RTLD_DEFAULT, "cuInit"));
    CHECK(init(0) == CUDA_ERROR_NO_DEVICE);
  } else if (how == "exec_ls") {
    // An unrelated program under the preload.
    execl("/bin/ls", "ls", "-d", "/", nullptr);
  } else {
    return 2;
  }
  return 0;
}
