// nvJitLink for the simulated device: the inputs that it would link to machine code become one PTX
// text. NVIDIA's library links LTO-IR and can produce PTX from it (-lto -ptx); the PTX engine links
// that with PTX and with the images that our NVRTC functions made.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "compilers/compilers.h"
#include "ptx/engine.h"
#include "ptx/fatbin.h"

namespace simgpu::compilers {
namespace {

using Handle = void*;
using Create = int(Handle*, uint32_t, const char**);
using OfHandle = int(Handle);
using Destroy = int(Handle*);
using AddData = int(Handle, int, const void*, size_t, const char*);
using AddFile = int(Handle, int, const char*);
using Size = int(Handle, size_t*);
using Get = int(Handle, char*);

// nvJitLinkResult and nvJitLinkInputType
constexpr int kInvalidInput = 3, kPtxCompile = 4, kInternal = 6;
constexpr int kPtx = 2, kLtoIr = 3, kFatbin = 4, kLibraryFile = 6, kIndex = 7;

// One session. Its handle is the real one's, which has the options, the LTO-IR and the logs.
struct Link {
  int library;
  Handle handle;
  bool has_ltoir = false;
  uint32_t max_registers = 0;  // -maxrregcount; 0: not given
  std::vector<char*> texts;
  char* linked = nullptr;
  size_t length = 0;
  char log[4096] = "";
  ~Link() {
    for (char* text : texts) free(text);
    free(linked);
  }
};

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
std::vector<Link*>* g_links;  // never freed: programs end their sessions after our destructors

// A session is its program's to use from one thread at a time.
Link* find(int library, Handle handle) {
  Link* found = nullptr;
  pthread_mutex_lock(&g_mutex);
  if (g_links)
    for (Link* l : *g_links)
      if (l->library == library && l->handle == handle) found = l;
  pthread_mutex_unlock(&g_mutex);
  return found;
}

void enter(Link* link) {
  pthread_mutex_lock(&g_mutex);
  if (!g_links) g_links = new std::vector<Link*>;
  g_links->push_back(link);
  pthread_mutex_unlock(&g_mutex);
}

void remove(Link* link) {
  pthread_mutex_lock(&g_mutex);
  for (size_t k = 0; k < g_links->size(); ++k)
    if ((*g_links)[k] == link) {
      g_links->erase(g_links->begin() + static_cast<long>(k));
      break;
    }
  pthread_mutex_unlock(&g_mutex);
  delete link;
}

int create(int library, Handle* handle, uint32_t count, const char** options) {
  auto* own = real<Create>(library, "nvJitLinkCreate");
  if (!own) return kInternal;
  uint32_t sm = 0, max_registers = 0;
  bool lto = false, ptx = false;
  for (uint32_t k = 0; options && k < count; ++k) {
    if (strncmp(options[k], "-arch=sm_", 9) == 0) sm = static_cast<uint32_t>(atoi(options[k] + 9));
    if (strncmp(options[k], "-maxrregcount=", 14) == 0)
      max_registers = static_cast<uint32_t>(atoi(options[k] + 14));
    lto |= strcmp(options[k], "-lto") == 0 || strcmp(options[k], "-dlto") == 0;
    ptx |= strcmp(options[k], "-ptx") == 0;
  }
  if (ptx || !code_runs(sm)) return own(handle, count, options);
  std::vector<const char*> all(options, options + count);
  if (lto) all.push_back("-ptx");
  const int r = own(handle, static_cast<uint32_t>(all.size()), all.data());
  if (r != 0) return r;
  auto* link = new Link;
  link->library = library;
  link->handle = *handle;
  link->max_registers = max_registers;
  enter(link);
  return 0;
}

int destroy(int library, Handle* handle) {
  auto* own = real<Destroy>(library, "nvJitLinkDestroy");
  if (!own) return kInternal;
  if (Link* link = handle ? find(library, *handle) : nullptr; link) remove(link);
  return own(handle);
}

char* copy_of(const void* data, size_t size) {
  auto* out = static_cast<char*>(calloc(1, size + 8));  // the engine expects a terminating zero
  if (out) memcpy(out, data, size);
  return out;
}

// NVIDIA's device runtime. The part of it that the simulated GPU supports is built in; kernels that
// call other functions of it fail with their names.
bool is_device_runtime(const char* data, size_t size) {
  constexpr char kArchive[] = "!<arch>\n", kMember[] = "cuda_device_runtime.o/";
  constexpr size_t kHead = 8, kListed = 4096;  // members before it are the archive's own index
  if (size < kHead || memcmp(data, kArchive, kHead) != 0) return false;
  return memmem(data, size < kListed ? size : kListed, kMember, sizeof kMember - 1) != nullptr;
}

// Object files and archives for the host, and machine code, cannot be linked here.
int add_image(Link* link, const char* data, size_t size, const char* name) {
  if (is_device_runtime(data, size)) return 0;
  if (size >= 4 && memcmp(data,
                          "\x7f"
                          "ELF",
                          4) == 0) {
    snprintf(link->log, sizeof link->log,
             "ERROR: %s is machine code; the simulated GPU links PTX and LTO-IR\n",
             name ? name : "an input");
    return kInvalidInput;
  }
  char* text = nullptr;
  uint32_t magic = 0;
  if (size >= sizeof magic) memcpy(&magic, data, sizeof magic);
  if (magic == 0xba55ed50) {
    size_t length = 0;
    if (ptx::extract_ptx(data, device_sm(), &text, &length, link->log, sizeof link->log) !=
        ptx::FatbinResult::kOk)
      return kInvalidInput;
  } else {
    text = copy_of(data, size);
  }
  if (!text) return kInternal;
  link->texts.push_back(text);
  return 0;
}

int add_data(int library, Handle handle, int type, const void* data, size_t size,
             const char* name) {
  auto* own = real<AddData>(library, "nvJitLinkAddData");
  if (!own) return kInternal;
  Link* link = find(library, handle);
  if (!link || !data || size == 0) return own(handle, type, data, size, name);
  const auto* bytes = static_cast<const char*>(data);
  const bool ltoir = type == kLtoIr || (size >= 4 && memcmp(data,
                                                            "\xed"
                                                            "CN\x7f",
                                                            4) == 0);
  if (type == kIndex) return own(handle, type, data, size, name);
  if (!ltoir) return add_image(link, bytes, size, name);
  const int r = own(handle, type, data, size, name);
  link->has_ltoir |= r == 0;
  return r;
}

int add_file(int library, Handle handle, int type, const char* path) {
  auto* own = real<AddFile>(library, "nvJitLinkAddFile");
  if (!own) return kInternal;
  FILE* file = find(library, handle) && path ? fopen(path, "rb") : nullptr;
  if (!file) return own(handle, type, path);
  const char* base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  if (type == kLibraryFile && strcmp(base, "libcudadevrt.a") == 0) {
    fclose(file);
    return 0;
  }
  std::vector<char> bytes;
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) != 0;)
    bytes.insert(bytes.end(), piece, piece + n);
  fclose(file);
  return add_data(library, handle, type, bytes.data(), bytes.size(), path);
}

// The PTX that NVIDIA's library makes of the LTO-IR.
int link_ltoir(Link* link) {
  auto* own = real<OfHandle>(link->library, "nvJitLinkComplete");
  auto* size = real<Size>(link->library, "nvJitLinkGetLinkedPtxSize");
  auto* get = real<Get>(link->library, "nvJitLinkGetLinkedPtx");
  if (!own || !size || !get) return kInternal;
  if (int r = own(link->handle); r != 0) return r;
  size_t bytes = 0;
  if (int r = size(link->handle, &bytes); r != 0) return r;
  auto* text = static_cast<char*>(calloc(1, bytes + 8));
  if (!text) return kInternal;
  link->texts.push_back(text);
  return get(link->handle, text);
}

// Adds the limit as a directive to each kernel, because the driver gets the text alone. Takes over
// `text`.
char* with_limit(char* text, uint32_t registers, size_t* length) {
  constexpr char kEntry[] = ".entry ";
  constexpr size_t kDirective = 32;
  size_t entries = 0;
  for (const char* at = text; (at = strstr(at, kEntry)); ++at) ++entries;
  if (registers == 0 || entries == 0) return text;
  auto* out = static_cast<char*>(malloc(*length + entries * kDirective + 1));
  if (!out) return text;
  const char* from = text;
  char* to = out;
  for (const char* at = text; (at = strstr(at, kEntry)); ++at) {
    const char* body = strpbrk(at, "{;");  // skips comments
    if (!body || *body != '{' || body < from) continue;
    memcpy(to, from, static_cast<size_t>(body - from));
    to += body - from;
    to += snprintf(to, kDirective, ".maxnreg %u\n", registers);
    from = body;
  }
  strcpy(to, from);
  free(text);
  *length = strlen(out);
  return out;
}

int complete(int library, Handle handle) {
  auto* own = real<OfHandle>(library, "nvJitLinkComplete");
  if (!own) return kInternal;
  Link* link = find(library, handle);
  if (!link || link->linked) return own(handle);
  if (link->has_ltoir)
    if (int r = link_ltoir(link); r != 0) return r;
  std::vector<ptx::LinkInput> inputs;
  for (char* text : link->texts) inputs.push_back({text, strlen(text), nullptr});
  if (inputs.empty()) return own(handle);
  char log[2048] = "";
  size_t length = 0;
  char* text = ptx::link(inputs.data(), inputs.size(), &length, log, sizeof log);
  if (text) text = with_limit(text, link->max_registers, &length);
  ptx::Module* code = text ? ptx::compile(text, length, {device_sm()}, log, sizeof log) : nullptr;
  if (!code) {
    free(text);
    snprintf(link->log, sizeof link->log, "ERROR: the simulated GPU cannot link this: %s\n", log);
    return kPtxCompile;
  }
  ptx::destroy(code);
  link->linked = text;
  link->length = length;
  return 0;
}

int cubin_size(int library, Handle handle, size_t* size) {
  auto* own = real<Size>(library, "nvJitLinkGetLinkedCubinSize");
  if (!own) return kInternal;
  const Link* link = find(library, handle);
  if (!link || !link->linked || !size) return own(handle, size);
  *size = link->length + 1;  // drivers are given images without their length
  return 0;
}

int cubin(int library, Handle handle, char* out) {
  auto* own = real<Get>(library, "nvJitLinkGetLinkedCubin");
  if (!own) return kInternal;
  const Link* link = find(library, handle);
  if (!link || !link->linked || !out) return own(handle, out);
  memcpy(out, link->linked, link->length + 1);
  return 0;
}

int error_log_size(int library, Handle handle, size_t* size) {
  auto* own = real<Size>(library, "nvJitLinkGetErrorLogSize");
  if (!own) return kInternal;
  const Link* link = find(library, handle);
  if (!link || link->log[0] == 0 || !size) return own(handle, size);
  *size = strlen(link->log) + 1;
  return 0;
}

int error_log(int library, Handle handle, char* out) {
  auto* own = real<Get>(library, "nvJitLinkGetErrorLog");
  if (!own) return kInternal;
  const Link* link = find(library, handle);
  if (!link || link->log[0] == 0 || !out) return own(handle, out);
  strcpy(out, link->log);
  return 0;
}

template <int kLibrary>
struct Of {
  static int create(Handle* h, uint32_t n, const char** o) {
    return compilers::create(kLibrary, h, n, o);
  }
  static int destroy(Handle* h) { return compilers::destroy(kLibrary, h); }
  static int add_data(Handle h, int type, const void* data, size_t size, const char* name) {
    return compilers::add_data(kLibrary, h, type, data, size, name);
  }
  static int add_file(Handle h, int type, const char* path) {
    return compilers::add_file(kLibrary, h, type, path);
  }
  static int complete(Handle h) { return compilers::complete(kLibrary, h); }
  static int cubin_size(Handle h, size_t* s) { return compilers::cubin_size(kLibrary, h, s); }
  static int cubin(Handle h, char* out) { return compilers::cubin(kLibrary, h, out); }
  static int error_log_size(Handle h, size_t* s) {
    return compilers::error_log_size(kLibrary, h, s);
  }
  static int error_log(Handle h, char* out) { return compilers::error_log(kLibrary, h, out); }

  static void* function(const char* name, size_t length) {
    const struct {
      const char* name;
      void* function;
    } all[] = {
        {"Create", reinterpret_cast<void*>(create)},
        {"Destroy", reinterpret_cast<void*>(destroy)},
        {"AddData", reinterpret_cast<void*>(add_data)},
        {"AddFile", reinterpret_cast<void*>(add_file)},
        {"Complete", reinterpret_cast<void*>(complete)},
        {"GetLinkedCubinSize", reinterpret_cast<void*>(cubin_size)},
        {"GetLinkedCubin", reinterpret_cast<void*>(cubin)},
        {"GetErrorLogSize", reinterpret_cast<void*>(error_log_size)},
        {"GetErrorLog", reinterpret_cast<void*>(error_log)},
    };
    for (const auto& one : all)
      if (strlen(one.name) == length && strncmp(one.name, name, length) == 0) return one.function;
    return nullptr;
  }
};

}  // namespace

// nvJitLinkCreate, or __nvJitLinkCreate_13_0 as NVIDIA's header calls it in the end.
void* nvjitlink_function(const char* name, int library) {
  name += name[0] == '_' ? strlen("__nvJitLink") : strlen("nvJitLink");
  const size_t length = strcspn(name, "_");
  switch (library) {
    case 0:
      return Of<0>::function(name, length);
    case 1:
      return Of<1>::function(name, length);
    case 2:
      return Of<2>::function(name, length);
    default:
      return Of<3>::function(name, length);
  }
}

}  // namespace simgpu::compilers

using namespace simgpu::compilers;

// For code that is linked with nvJitLink, under the name of the version whose header it was
// compiled with, or without one.
#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default"), noinline))
#define SIMGPU_LINKED(name) \
  linked_library(#name, reinterpret_cast<void*>(&name), __builtin_return_address(0))

#define SIMGPU_SESSION(create_name, destroy_name, complete_name)                       \
  SIMGPU_EXPORT int create_name(void** handle, uint32_t count, const char** options) { \
    return create(SIMGPU_LINKED(create_name), handle, count, options);                 \
  }                                                                                    \
  SIMGPU_EXPORT int destroy_name(void** handle) {                                      \
    return destroy(SIMGPU_LINKED(destroy_name), handle);                               \
  }                                                                                    \
  SIMGPU_EXPORT int complete_name(void* handle) {                                      \
    return complete(SIMGPU_LINKED(complete_name), handle);                             \
  }
#define SIMGPU_INPUTS(data_name, file_name)                                          \
  SIMGPU_EXPORT int data_name(void* handle, int type, const void* data, size_t size, \
                              const char* name) {                                    \
    return add_data(SIMGPU_LINKED(data_name), handle, type, data, size, name);       \
  }                                                                                  \
  SIMGPU_EXPORT int file_name(void* handle, int type, const char* path) {            \
    return add_file(SIMGPU_LINKED(file_name), handle, type, path);                   \
  }
#define SIMGPU_RESULT(size_function, size_name, get_function, get_name) \
  SIMGPU_EXPORT int size_name(void* handle, size_t* size) {             \
    return size_function(SIMGPU_LINKED(size_name), handle, size);       \
  }                                                                     \
  SIMGPU_EXPORT int get_name(void* handle, char* out) {                 \
    return get_function(SIMGPU_LINKED(get_name), handle, out);          \
  }
#define SIMGPU_ALL(before, after)                                                        \
  SIMGPU_SESSION(before##Create##after, before##Destroy##after, before##Complete##after) \
  SIMGPU_INPUTS(before##AddData##after, before##AddFile##after)                          \
  SIMGPU_RESULT(cubin_size, before##GetLinkedCubinSize##after, cubin,                    \
                before##GetLinkedCubin##after)                                           \
  SIMGPU_RESULT(error_log_size, before##GetErrorLogSize##after, error_log,               \
                before##GetErrorLog##after)

SIMGPU_ALL(nvJitLink, )
SIMGPU_ALL(__nvJitLink, _12_0)
SIMGPU_ALL(__nvJitLink, _12_1)
SIMGPU_ALL(__nvJitLink, _12_2)
SIMGPU_ALL(__nvJitLink, _12_3)
SIMGPU_ALL(__nvJitLink, _12_4)
SIMGPU_ALL(__nvJitLink, _12_5)
SIMGPU_ALL(__nvJitLink, _12_6)
SIMGPU_ALL(__nvJitLink, _12_8)
SIMGPU_ALL(__nvJitLink, _12_9)
SIMGPU_ALL(__nvJitLink, _13_0)
SIMGPU_ALL(__nvJitLink, _13_1)
SIMGPU_ALL(__nvJitLink, _13_2)
SIMGPU_ALL(__nvJitLink, _13_3)
SIMGPU_ALL(__nvJitLink, _13_4)
SIMGPU_ALL(__nvJitLink, _13_5)
