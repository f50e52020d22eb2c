#include "device/objects/green_contexts.h"

#include "base/syscall.h"
#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

// Converted contexts, for questions without the registry's lock. Written under it.
struct ConvertedContext {
  uint64_t converted, context, green;  // names
};
constexpr size_t kMostConverted = 256;
ConvertedContext converted_contexts[kMostConverted];
size_t converted_count;

const ConvertedContext* find_converted(uint64_t name) {
  const size_t count = __atomic_load_n(&converted_count, __ATOMIC_ACQUIRE);
  if (__builtin_expect(count == 0, 1) || !name) return nullptr;
  for (size_t i = 0; i < count; ++i)
    if (__atomic_load_n(&converted_contexts[i].converted, __ATOMIC_ACQUIRE) == name)
      return &converted_contexts[i];
  return nullptr;
}

bool cannot(DeviceReport* report, const char* what, CUresult result) {
  const char* text = nullptr;
  real().cuGetErrorName(result, &text);
  return report->fail(kExitIncompatible, "%s cannot be made again: %s (%d)", what,
                      text ? text : "unknown error", static_cast<int>(result));
}

bool same_size(const CUdevResource& a, const CUdevResource& b) {
  return a.type == b.type &&
         (a.type != CU_DEV_RESOURCE_TYPE_SM || !__builtin_memcmp(&a.sm, &b.sm, sizeof a.sm));
}

unsigned size_of(const ResourceObject* r) { return r ? r->held.sm.smCount : 0; }

bool came_out_otherwise(const SplitObject* s, unsigned groups, unsigned size,
                        DeviceReport* report) {
  const unsigned before = static_cast<unsigned>(s->groups.size());
  return report->fail(
      kExitIncompatible,
      "cuDevSmResourceSplitByCount: %u multiprocessors came in %u parts of %u and would "
      "come in %u of %u after the restore",
      size_of(s->input), before, before ? size_of(s->groups[0]) : 0, groups, size);
}

}  // namespace

void list_converted(uint64_t converted, uint64_t context, uint64_t green) {
  size_t at = 0;
  while (at < converted_count && converted_contexts[at].converted) ++at;
  if (at == kMostConverted) return registry().refuse("cuCtxFromGreenCtx: too many green contexts");
  converted_contexts[at].context = context;
  converted_contexts[at].green = green;
  __atomic_store_n(&converted_contexts[at].converted, converted, __ATOMIC_RELEASE);
  if (at == converted_count) __atomic_store_n(&converted_count, at + 1, __ATOMIC_RELEASE);
}

void unlist_converted(uint64_t converted) {
  for (ConvertedContext& s : converted_contexts)
    if (s.converted == converted) __atomic_store_n(&s.converted, uint64_t{0}, __ATOMIC_RELEASE);
}

uint64_t owning_context(uint64_t name) {
  const ConvertedContext* s = find_converted(name);
  return s ? s->context : name;
}

uint64_t green_of_converted(uint64_t name) {
  const ConvertedContext* s = find_converted(name);
  return s ? s->green : 0;
}

uint64_t converted_of_green(uint64_t green) {
  for (size_t i = 0; i < converted_count; ++i)
    if (converted_contexts[i].converted && converted_contexts[i].green == green)
      return converted_contexts[i].converted;
  return 0;
}

uint64_t current_green_name() {
  if (!__atomic_load_n(&converted_count, __ATOMIC_ACQUIRE)) return 0;
  CUcontext context = nullptr;
  if (real().cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return 0;
  return green_of_converted(name_from(Kind::kContext, context));
}

namespace {

bool is_gone(CUresult result) {
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
}

// An event behind all work of a green context: it is reached at once when there is none, but for
// the moment that a device takes for that.
CUresult query_green(CUgreenCtx green) {
  constexpr int kTries = 20;
  CUevent mark = nullptr;
  CUresult result = real().cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = real().cuGreenCtxRecordEvent(green, mark);
  if (result == CUDA_SUCCESS) result = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < kTries && result == CUDA_ERROR_NOT_READY; ++i) {
    if (i) sys::sleep_us(20);
    result = real().cuEventQuery(mark);
  }
  if (mark) real().cuEventDestroy_v2(mark);
  return is_gone(result) ? CUDA_SUCCESS : result;
}

}  // namespace

// A green context may be current to one thread only, and that is the program's: it is asked without
// being made current.
CUresult query_green_streams(uint64_t context) {
  const size_t count = __atomic_load_n(&converted_count, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t converted = __atomic_load_n(&converted_contexts[i].converted, __ATOMIC_ACQUIRE);
    if (!converted || converted_contexts[i].context != context) continue;
    WithContext with(context);
    if (!with) return CUDA_SUCCESS;  // gone
    CUresult result =
        query_green(real_of<CUgreenCtx>(Kind::kGreenCtx, converted_contexts[i].green));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool replay_resource(ResourceObject* r, DeviceReport* report) {
  if (r->split) return true;  // with its split
  CUresult result = CUDA_SUCCESS;
  CUdevResource now = {};
  if (r->green) {
    if (!registry().find<Object>(ObjectType::kGreenContext, r->green)) return true;
    result = real().cuGreenCtxGetDevResource(real_of<CUgreenCtx>(Kind::kGreenCtx, r->green), &now,
                                             r->held.type);
  } else if (r->of_context) {
    if (!name_bound(Kind::kContext, r->of_context)) return true;
    result = real().cuCtxGetDevResource(real_of<CUcontext>(Kind::kContext, r->of_context), &now,
                                        r->held.type);
  } else {
    result = real().cuDeviceGetDevResource(r->device, &now, r->held.type);
  }
  if (result != CUDA_SUCCESS) return cannot(report, "the resources of a device", result);
  if (now.sm.smCount != r->held.sm.smCount)
    return report->fail(kExitIncompatible,
                        "a device or context had %u multiprocessors to split, here it has %u",
                        size_of(r), now.sm.smCount);
  r->now = now;
  return true;
}

bool replay_split(SplitObject* s, DeviceReport* report) {
  const bool lost =
      s->input->green && !registry().find<Object>(ObjectType::kGreenContext, s->input->green);
  if (lost || (s->input->of_context && !name_bound(Kind::kContext, s->input->of_context)))
    return true;
  const size_t before = s->groups.size();
  Vector<CUdevResource> groups;
  for (unsigned i = 0; i < s->asked; ++i)
    if (!groups.push({})) return report->fail(kExitError, "no memory to split a device");
  CUdevResource rest = {};
  unsigned count = s->asked;
  CUresult result = real().cuDevSmResourceSplitByCount(groups.data(), &count, &s->input->now, &rest,
                                                       s->flags, s->least);
  if (result != CUDA_SUCCESS) return cannot(report, "a part of a device", result);
  const unsigned size = count ? groups[0].sm.smCount : 0;
  if (count != before) return came_out_otherwise(s, count, size, report);
  for (size_t i = 0; i < before; ++i) {
    if (!s->groups[i]) continue;  // equal to one that was known
    if (!same_size(groups[i], s->groups[i]->held))
      return came_out_otherwise(s, count, groups[i].sm.smCount, report);
    s->groups[i]->now = groups[i];
  }
  if (s->rest && !same_size(rest, s->rest->held)) return came_out_otherwise(s, count, size, report);
  if (s->rest) s->rest->now = rest;
  return true;
}

bool replay_resource_desc(ResourceDescObject* d, DeviceReport* report) {
  if (d->lost) return true;
  Vector<CUdevResource> now;
  for (ResourceObject* r : d->resources)
    if (!r || !now.push(r->now)) return report->fail(kExitError, "no memory to split a device");
  CUdevResourceDesc desc = nullptr;
  CUresult result =
      real().cuDevResourceGenerateDesc(&desc, now.data(), static_cast<unsigned>(now.size()));
  if (result != CUDA_SUCCESS) return cannot(report, "a descriptor of parts of a device", result);
  bind(Kind::kDevResourceDesc, d->name, bits(desc));
  return true;
}

bool replay_green(GreenObject* g, DeviceReport* report) {
  CUgreenCtx now = nullptr;
  CUresult result = real().cuGreenCtxCreate(
      &now, real_of<CUdevResourceDesc>(Kind::kDevResourceDesc, g->desc->name), g->device, g->flags);
  if (result != CUDA_SUCCESS) return cannot(report, "a green context", result);
  bind(Kind::kGreenCtx, g->name, bits(now));
  for (uint64_t name : g->converted) {
    CUcontext converted = nullptr;
    result = real().cuCtxFromGreenCtx(&converted, now);
    if (result != CUDA_SUCCESS) return cannot(report, "a green context", result);
    bind(Kind::kContext, name, bits(converted));
  }
  return true;
}

}  // namespace gpuckpt::device
