#include "device/base/gpu_map.h"

#include "base/text/text.h"
#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {
namespace {

constexpr size_t kMaxName = 48;  // "GPU-" and a UUID
using Place = char[kMaxName];

// Takes the text up to `end` or the end of all; false: too long, or empty.
bool take(const char** at, char end, Place out) {
  size_t n = 0;
  while (**at && **at != end) {
    if (n + 1 == kMaxName) return false;
    out[n++] = *(*at)++;
  }
  out[n] = 0;
  if (**at == end) ++*at;
  return n > 0;
}

// A number below `devices`, or -1.
int number_of(const char* text, int devices) {
  int n = 0;
  for (const char* c = text; *c; ++c) {
    if (*c < '0' || *c > '9' || n > kMaxDevices) return -1;
    n = n * 10 + (*c - '0');
  }
  return n < devices ? n : -1;
}

int device_named(const char* text) {
  const MachineFacts& facts = machine_facts;
  for (int i = 0; i < facts.devices; ++i)
    if (equal(facts.device[i].uuid, text)) return i;
  return number_of(text, facts.devices);
}

int hex_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "GPU-" and 32 digits with dashes between them.
bool read_uuid(const char* text, CUuuid* out) {
  if (__builtin_strncmp(text, "GPU-", 4)) return false;
  int digits = 0;
  for (const char* c = text + 4; *c; ++c) {
    if (*c == '-') continue;
    int digit = hex_of(*c);
    if (digit < 0 || digits == 32) return false;
    auto& byte = out->bytes[digits / 2];
    byte = static_cast<char>(digits % 2 ? (static_cast<uint8_t>(byte) << 4 | digit) : digit);
    ++digits;
  }
  return digits == 32;
}

bool bad(DeviceReport* report, const char* map, const char* why) {
  return report->fail(kExitIncompatible, "--gpu-map %s: %s", map, why);
}

}  // namespace

bool apply_gpu_map(const char* map, DeviceReport* report) {
  static Place places[kMaxDevices];
  const int devices = machine_facts.devices;
  // What the program had: as CUDA_VISIBLE_DEVICES says, or all in order.
  const char* before = realm_visible_devices();
  for (int i = 0; i < devices; ++i)
    if (!before || !take(&before, ',', places[i])) format(places[i], kMaxName, "%d", i);
  for (const char* at = map; *at;) {
    Place from, to;
    if (!take(&at, '=', from) || !take(&at, ',', to))
      return bad(report, map, "write it as A=B[,C=D...]");
    int device = device_named(from);
    if (device < 0) return bad(report, map, "the program has no such device");
    copy(places[device], kMaxName, to);
  }
  char list[kMaxDevices * kMaxName] = "";
  for (int i = 0; i < devices; ++i) {
    for (int k = 0; k < i; ++k)
      if (equal(places[i], places[k]))
        return bad(report, map, "two devices of the program would be one (name both: A=B,B=A)");
    size_t used = length(list);
    format(list + used, sizeof list - used, "%s%s", i ? "," : "", places[i]);
  }
  realm_show_devices(list);
  return true;
}

bool pair_gpus(const char* map, CUcheckpointGpuPair* pairs, DeviceReport* report) {
  const int devices = machine_facts.devices;
  for (int i = 0; i < devices; ++i) {
    if (!read_uuid(machine_facts.device[i].uuid, &pairs[i].oldUuid))
      return bad(report, map, "a device has no UUID");
    pairs[i].newUuid = pairs[i].oldUuid;
  }
  for (const char* at = map; *at;) {
    Place from, to;
    if (!take(&at, '=', from) || !take(&at, ',', to))
      return bad(report, map, "write it as A=B[,C=D...]");
    int device = device_named(from), target = device_named(to);
    if (device < 0) return bad(report, map, "the program has no such device");
    if (target >= 0)
      pairs[device].newUuid = pairs[target].oldUuid;
    else if (!read_uuid(to, &pairs[device].newUuid))
      return bad(report, map, "a device that the program does not see is named by its UUID");
  }
  for (int i = 0; i < devices; ++i)
    for (int k = 0; k < i; ++k)
      if (!__builtin_memcmp(&pairs[i].newUuid, &pairs[k].newUuid, sizeof(CUuuid)))
        return bad(report, map, "two devices of the program would be one (name both: A=B,B=A)");
  return true;
}

}  // namespace gpuckpt::device
