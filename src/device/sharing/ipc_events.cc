// Events of other processes (cuIpc*): a handle of ours names the process and the number under which
// it hands out a file with the driver's own handle, which differs after every restore.
#include <sys/mman.h>

#include "base/descriptors/handover.h"
#include "base/syscall.h"
#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

constexpr uint32_t kMagic = 0x31656b67;  // "gke1"

struct EventTicket {
  uint32_t magic;
  int32_t pid;
  uint64_t identity;
  uint32_t offer;
  char reserved[44];
};
static_assert(sizeof(EventTicket) == CU_IPC_HANDLE_SIZE);

struct OfferedEvent {
  uint64_t event;  // its name
  int fd, offer;
};
struct OpenedEvent {
  uint64_t event;
  EventTicket ticket;
};
struct IpcEvents {
  Mutex lock{kIpcEventLock};
  Vector<OfferedEvent> offered;
  Vector<OpenedEvent> opened;
};
IpcEvents* only;
IpcEvents& all() { return made_once(&only); }

// A file with what the driver calls the event.
CUresult describe(CUevent event, int* out) {
  CUipcEventHandle handle;
  CUresult result = real().cuIpcGetEventHandle(&handle, event);
  if (result != CUDA_SUCCESS) return result;
  const long fd = sys::call(SYS_memfd_create, sys::ptr("gpuckpt-event"), MFD_CLOEXEC);
  if (sys::failed(fd)) return CUDA_ERROR_OPERATING_SYSTEM;
  *out = ipc_own_descriptor(static_cast<int>(fd));
  return sys::call(SYS_pwrite64, *out, sys::ptr(&handle), sizeof handle, 0) == sizeof handle
             ? CUDA_SUCCESS
             : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult offer(CUevent event, uint64_t name, int* number) {
  MutexLock guard(all().lock);
  for (const OfferedEvent& o : all().offered) {
    *number = o.offer;
    if (o.event == name) return CUDA_SUCCESS;
  }
  int fd = -1;
  CUresult result = describe(event, &fd);
  if (result == CUDA_SUCCESS) {
    *number = handover_offer(fd);
    if (*number >= 0 && all().offered.push({name, fd, *number})) return CUDA_SUCCESS;
    handover_withdraw(*number);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (fd >= 0) ipc_close_descriptor(fd);
  return result;
}

// In the current context. `fd` is used up.
CUresult open_described(long fd, CUevent* out) {
  CUipcEventHandle handle;
  if (sys::failed(fd)) return CUDA_ERROR_MAP_FAILED;
  const bool whole = sys::pread(static_cast<int>(fd), &handle, sizeof handle, 0) == sizeof handle;
  sys::close(static_cast<int>(fd));
  return whole ? real().cuIpcOpenEventHandle(out, handle) : CUDA_ERROR_MAP_FAILED;
}

CUresult open_ticket(CUevent* out, const EventTicket& t) {
  if (t.pid == sys::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as documented
  IpcFetch fetch;
  CUresult result = open_described(fetch.descriptor(t.pid, t.identity, t.offer), out);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t name = new_name(Kind::kEvent, *out), context = current_context_name();
  bool kept;
  {
    MutexLock guard(registry().lock);
    auto* object = registry().add<EventObject>(ObjectType::kEvent, name, context);
    if (object) object->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    kept = object;
  }
  MutexLock guard(all().lock);
  if (!kept || !all().opened.push({name, t}))
    registry().refuse("out of memory while recording cuIpcOpenEventHandle");
  return CUDA_SUCCESS;
}

EventObject* event_named(uint64_t name) {
  return registry().find<EventObject>(ObjectType::kEvent, name);
}

}  // namespace

bool ipc_opened_event(uint64_t name) {
  if (!only) return false;
  MutexLock guard(all().lock);
  for (const OpenedEvent& o : all().opened)
    if (o.event == name) return true;
  return false;
}

bool ipc_event_shares(void* context, bool (*one)(void* context, const DeviceShare&)) {
  if (!only) return true;
  for (const OpenedEvent& o : only->opened)
    if (!one(context, {DeviceShare::kTook, o.ticket.pid, o.ticket.offer})) return false;
  for (const OfferedEvent& o : only->offered)
    if (!one(context, {DeviceShare::kOffers, 0, static_cast<uint32_t>(o.offer)})) return false;
  return true;
}

bool ipc_offers_event(int number) {
  for (size_t i = 0; only && i < only->offered.size(); ++i)
    if (only->offered[i].offer == number) return true;
  return false;
}

void ipc_forget_event(uint64_t name) {
  if (!only) return;
  MutexLock guard(all().lock);
  for (size_t i = all().opened.size(); i-- > 0;)
    if (all().opened[i].event == name) all().opened.swap_remove(i);
  for (size_t i = all().offered.size(); i-- > 0;) {
    const OfferedEvent o = all().offered[i];
    if (o.event != name) continue;
    handover_withdraw(o.offer);
    ipc_close_descriptor(o.fd);
    all().offered.swap_remove(i);
  }
}

bool replay_shared_events(DeviceReport* report) {
  if (!only) return true;
  for (OfferedEvent& o : all().offered) {
    EventObject* e = event_named(o.event);
    if (!e) continue;  // went with its context
    WithContext with(e->context);
    CUresult result = describe(real_of<CUevent>(Kind::kEvent, o.event), &o.fd);
    if (result != CUDA_SUCCESS)
      return report->fail(
          kExitIncompatible,
          "an event that other processes have (cuIpcGetEventHandle) cannot be shared again "
          "(%d)",
          static_cast<int>(result));
    handover_offer_again(o.offer, o.fd);
  }
  for (const OpenedEvent& o : all().opened) {
    EventObject* e = event_named(o.event);
    if (!e) continue;
    WithContext with(e->context);
    const EventTicket& t = o.ticket;
    CUevent now = nullptr;
    CUresult result = open_described(
        handover_fetch(t.pid, t.identity, static_cast<int>(t.offer), kIpcRestorePatienceUs), &now);
    if (result != CUDA_SUCCESS)
      return report->fail(
          kExitIncompatible,
          "an event of process %d (cuIpcOpenEventHandle) cannot be opened again (%d)", t.pid,
          static_cast<int>(result));
    bind(Kind::kEvent, o.event, bits(now));
  }
  return true;
}

}  // namespace device

using namespace device;

CUresult hook_cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  const uint64_t name = name_from(Kind::kEvent, event);
  bool known;
  {
    MutexLock guard(registry().lock);
    known = event_named(name);
  }
  if (!pHandle || !known || ipc_opened_event(name))
    return real().cuIpcGetEventHandle(pHandle, event);
  int number = -1;
  CUresult result = offer(event, name, &number);
  if (result != CUDA_SUCCESS) return result;
  EventTicket t = {};
  t.magic = kMagic;
  t.pid = sys::getpid();
  t.identity = handover_identity();
  t.offer = static_cast<uint32_t>(number);
  __builtin_memcpy(pHandle, &t, sizeof t);
  return CUDA_SUCCESS;
}

CUresult hook_cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  EventTicket t;
  __builtin_memcpy(&t, &handle, sizeof t);
  if (phEvent && t.magic == kMagic) return open_ticket(phEvent, t);
  CUresult result = real().cuIpcOpenEventHandle(phEvent, handle);
  if (result != CUDA_SUCCESS) return result;
  new_name(Kind::kEvent, *phEvent);
  registry().refuse("cuIpcOpenEventHandle: event of another process");
  return result;
}

}  // namespace gpuckpt
