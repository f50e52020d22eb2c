// The registry: every live CUDA object of the application, in the order of creation, with what it
// takes to make it again. It is ordinary process memory, so a snapshot carries it; after a restore
// `replay` walks it in place.
//
// Objects are known by their names (the values that the application holds), never by the driver's
// values of one generation. What the driver can report at snapshot time (limits, flags, event
// times) is asked then and not recorded before.
//
// Owner: process-wide, part of every snapshot; object pointers stay valid while their object lives.
// Threads: `lock` guards everything; hooks take it inside the gate only, so that no thread holds it
// while the gate is closed. Errors: null or false; an object without a record makes the next
// snapshot refuse (refuse()).
#pragma once

#include "device/base/lock_order.h"
#include "intercept/spec/cuda_types.h"

#include "device/base/memory.h"
#include "device/modules/image.h"
#include "intercept/realm/realm.h"
#include "intercept/translate/translate.h"

namespace gpuckpt::device {

enum class ObjectType : uint8_t {
  kContext,
  kStream,
  kEvent,
  kModule,
  kLibrary,
  kInstance,  // a library's module in one context
  kUse,       // the first use of a kernel or function in one context: the driver loads its code
  kKernel,
  kFunction,
  kPool,
  kGraph,
  kGraphExec,
  kArray,
  kMipmap,
  kTexture,
  kSurface,
  kTextureReference,
  kSurfaceReference,
  kResource,  // of a device, to be split
  kSplit,
  kResourceDesc,
  kGreenContext,
  kLink,          // a linker session
  kNotification,  // a function that the driver calls
  kLogCallback,
  kUserObject,
  kTombstone,  // a module or library that is gone, but was loaded before one that lives: replay
               // repeats it
  kCount,
};

struct Object {
  Object *next = nullptr, *previous = nullptr;  // creation order
  uint64_t name = 0;                            // the application's handle
  uint64_t context = 0;                         // name of the context it belongs to; 0: none
  ObjectType type = ObjectType::kCount;
  bool dead = false;  // kept for the order of loads only
};

struct ContextObject : Object {
  int device = 0;
  bool primary = false;
  bool alive = true;  // a primary context that was released stays listed: its name comes back
  unsigned flags = 0;
  bool first_api = false;  // cuCtxCreate without a version
  int retained = 0, attached = 0;
  RealmPlaces places;      // of the call that made it: it must come back at the same address
  Vector<uint64_t> peers;  // contexts whose memory it may access
  // Filled by the snapshot:
  size_t limits[16] = {};
  uint32_t limits_known = 0;
  int cache_config = -1;
  long flags_now = -1;                          // cuCtxSetFlags changes them; -1: not known
  Vector<CUlaunchAttribute> legacy_attributes;  // of its default stream
  // Event times: the driver's event that stands for the moment of the last restore.
  uint64_t time_base = 0;
  uint32_t time_base_generation = 0;
  double time_base_ms = 0;  // on this context's clock, which starts at 0 with its first base
  double next_base_ms = 0;  // what the clock shows at the moment of the latest snapshot
};

struct StreamObject : Object {
  unsigned flags = 0;
  int priority = 0;
  uint64_t green = 0;                    // name of the green context it is in; 0: none
  Vector<CUlaunchAttribute> attributes;  // as the program has set them
};

struct EventObject : Object {
  unsigned flags = 0;
  bool recorded = false;    // filled by the snapshot
  bool timed = false;       // at_ms is known
  bool remembered = false;  // its record lies before the last restore: times come from at_ms
  double at_ms = 0;
};

struct DeviceCalls;
void free_calls(DeviceCalls* calls);

// Contents of a module as loaded, shared between equal loads.
struct Image {
  Image* next;
  uint64_t uses, hash, size;
  ImageKind kind;
  bool wrapped;
  FatbinWrapper wrapper;  // points to bytes
  const void** parts;     // containers to be linked, within bytes; null: none
  DeviceCalls* calls;     // what its kernels call (device_heap.h); null: not read yet
  bool reading;           // a thread is about to
  alignas(16) uint8_t bytes[];
  const void* code() const { return wrapped ? static_cast<const void*>(&wrapper) : bytes; }
  ImageView view() const { return {kind, wrapped, bytes, size}; }
};

struct Option {
  int key;
  uint64_t value;
};

struct Global {
  char* symbol;
  uint64_t context;  // name
  uint64_t address, size;
  bool managed;       // of the host, too: captured while parked
  uint8_t* contents;  // of a managed one
};

// Memory of a device that something of ours takes: counted as free, and given back when the program
// needs it.
struct OurBytes {
  int device = -1;
  uint64_t bytes = 0;
  void take(int on, uint64_t count);
  void give_back();
};
uint64_t our_bytes(int device);  // all of them

struct ModuleObject : Object {
  Image* image = nullptr;  // null: the module of a library (library, context)
  uint64_t library = 0;
  bool listed = false;  // all variables of the image are in `globals`
  bool ours = false;    // the program does not know it, nor what it takes of the device:
  OurBytes held;
  Vector<Option> options;
  Vector<Global> globals;
};

struct LibraryObject : Object {
  Image* image = nullptr;
  Vector<Option> options, library_options;
  Vector<Global> globals;
  Vector<uint64_t> listed_in;  // contexts whose variables of the image are all in `globals`
  Vector<uint64_t> placed_in;  // contexts that have an InstanceObject of it
};

// The variables of a module or a library; null: the object is neither.
inline Vector<Global>* globals_of(Object* o) {
  if (o->type == ObjectType::kModule) return &static_cast<ModuleObject*>(o)->globals;
  return o->type == ObjectType::kLibrary ? &static_cast<LibraryObject*>(o)->globals : nullptr;
}

struct LibraryObject;
struct InstanceObject : Object {  // name: 0
  LibraryObject* library = nullptr;
};

struct UseObject : Object {           // name: 0
  Object* owner = nullptr;            // the library or module that it is of
  uint64_t kernel = 0, function = 0;  // one of them
};

struct Setting {
  int key;  // CUfunction_attribute, or kCacheConfig
  int value;
  int device;  // kernels
};
inline constexpr int kCacheConfig = -1;
inline constexpr int kSharedMemConfig = -2;

struct KernelObject : Object {
  uint64_t library = 0;
  char* symbol = nullptr;
  Vector<Setting> settings;
  Vector<uint64_t> used_in;  // contexts that have a UseObject of it
};

// What a launch of the first driver API takes, set call by call.
struct LaunchState {
  int block[3] = {};
  unsigned shared = 0, size = 0;
  bool shared_set = false, size_set = false;
  Vector<uint8_t> parameters;
};
CUresult replay_launch_state(CUfunction now, const LaunchState& state);
// Makes the driver load a kernel's code, or a function's, in the current context.
CUresult load_code(CUfunction function, CUkernel kernel);

struct FunctionObject : Object {
  uint64_t module = 0, kernel = 0;  // one of them
  char* symbol = nullptr;           // of a module's function
  Vector<Setting> settings;
  LaunchState* launch = nullptr;
  bool used = false;  // there is a UseObject of it
};

struct PoolObject : Object {
  int device = 0;
  bool standard = false;  // the device's default pool
  bool current = false;   // the device's current pool (cuDeviceSetMemPool)
  bool imported = false;  // stands for a pool of another process
  CUmemPoolProps properties = {};
  uint64_t threshold = 0;
  int reuse[3] = {1, 1, 1};  // CU_MEMPOOL_ATTR_REUSE_*
  uint64_t used = 0, used_high = 0, reserved_high = 0;
  Vector<int> readers;  // devices with access
};

struct Tombstone : Object {
  Object* target = nullptr;
};

class Registry {
 public:
  Mutex lock{kRegistryLock};

  template <typename T>
  T* find(ObjectType type, uint64_t name) {
    Object** found = by_name_[static_cast<size_t>(type)].find(name);
    return found ? static_cast<T*>(*found) : nullptr;
  }
  ContextObject* context(uint64_t name) { return find<ContextObject>(ObjectType::kContext, name); }
  // Makes, names and lists an object; null when memory is out (the registry then is `broken`).
  template <typename T>
  T* add(ObjectType type, uint64_t name, uint64_t context) {
    T* object = make<T>();
    if (!object || !list(object, type, name, context)) {
      broken = true;
      destroy(object);
      return nullptr;
    }
    return object;
  }
  // Names and lists an object that was made before.
  void adopt(Object* object, ObjectType type, uint64_t name) {
    if (!list(object, type, name, 0)) broken = true;
  }
  void remove(Object* object);  // unlists and frees
  // Around a call that ends an object: off the list before it, because the driver may give the
  // value to another thread at once; gone for good, or back on the list, after it.
  template <typename F>
  CUresult end(ObjectType type, uint64_t name, F native) {
    Object* object = detach(type, name);
    CUresult result = native();
    if (object) finish_end(object, result == CUDA_SUCCESS);
    return result;
  }
  // A module or library was unloaded: keeps what a replay of the order of loads needs.
  void unload(Object* object);
  void forget_context(uint64_t context);  // everything that dies with it
  // The same around the call that ends the context, see `end`.
  void detach_context(uint64_t context, Vector<Object*>* out);
  void finish_context_end(Vector<Object*>* objects, bool ended);
  Object* first() const { return first_; }

  ContextObject* primary_of(int device);

  Image* keep_image(const ImageView& view);
  void drop_image(Image* image);

  // Something could not be recorded; snapshots are refused with this reason.
  bool broken = false;
  char reason[256] = {};
  void refuse(const char* why);

 private:
  template <typename F>
  void drop_all(F gone);
  bool belongs_to_part_of(const Object* o, uint64_t library);
  Object* detach(ObjectType type, uint64_t name);
  void finish_end(Object* object, bool ended);
  static void dispose(Object* object);
  bool list(Object* object, ObjectType type, uint64_t name, uint64_t context);
  void unlist(Object* object);

  Object *first_ = nullptr, *last_ = nullptr;
  HashMap<Object*> by_name_[static_cast<size_t>(ObjectType::kCount)];
  Image* images_ = nullptr;
  uint64_t dead_ = 0;
};

Registry& registry();

char* keep_text(const char* text);

// Handles, names.
template <typename H>
uint64_t bits(H handle) {
  return handle_bits(handle);
}
template <typename H>
uint64_t name_from(Kind kind, H real_handle) {
  return translating() ? name_of(kind, handle_bits(real_handle)) : handle_bits(real_handle);
}
template <typename H>
uint64_t new_name(Kind kind, H real_handle) {
  return translating() ? name_new(kind, handle_bits(real_handle)) : handle_bits(real_handle);
}
template <typename H>
H real_of(Kind kind, uint64_t name) {
  return handle_from<H>(translating() ? now_of(kind, name) : name);
}

// Name of the calling thread's current context (of a green context: of the primary one it is in);
// 0: none.
uint64_t current_context_name();

// Makes `context` (the driver's) current for a scope; restores what was current before.
class WithContext {
 public:
  explicit WithContext(CUcontext context);
  explicit WithContext(uint64_t name) : WithContext(real_of<CUcontext>(Kind::kContext, name)) {}
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
  explicit operator bool() const { return pushed_; }

 private:
  bool pushed_;
};

// Stream captures of the application in progress. While any is, calls that would fail natively must
// fail here.
extern uint32_t captures_active;
extern uint64_t capture_latest;  // name of the stream whose capture began last

}  // namespace gpuckpt::device
