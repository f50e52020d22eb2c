#include "device/base/call_sites.h"

#include <sys/uio.h>

#include "base/heap.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "device/base/lock_order.h"
#include "device/base/memory.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {
namespace {

constexpr size_t kWords = 256;  // of the stack that are looked at
constexpr size_t kAddresses = 8;
constexpr size_t kMostSites = 4096, kSlots = 2 * kMostSites;
constexpr uint64_t kRefreshUs = 1'000'000;

struct Site {
  uint64_t address[kAddresses];  // the rest is 0
};
struct Code {
  uint64_t begin, end;
};
struct Table {
  Vector<Site> sites;
  uint32_t slot[kSlots] = {};  // number of a site, 0: free
  Vector<Code> code;           // of others than ourselves and the driver, in order
  uint64_t looked_us = 0;
};
Mutex lock{kCallSiteLock};
Table* table;  // made at the first call

void look_for_code() {
  table->looked_us = sys::now_us();
  table->code.clear();
  static char buffer[4096];
  auto self = reinterpret_cast<uint64_t>(&look_for_code);
  LineReader lines("/proc/self/maps", buffer, sizeof buffer);
  while (char* line = lines.ok() ? lines.next() : nullptr) {
    MapsLine m;
    if (!parse_maps_line(line, &m) || !m.exec || !m.read) continue;
    if ((self >= m.start && self < m.end) || realm_owns(m.start, m.end - m.start)) continue;
    table->code.push({m.start, m.end});
  }
}

bool is_code(uint64_t address) {
  size_t low = 0, high = table->code.size();
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (address < table->code[middle].begin)
      high = middle;
    else if (address >= table->code[middle].end)
      low = middle + 1;
    else
      return true;
  }
  return false;
}

size_t pick(const uint64_t* words, size_t count, Site* site) {
  size_t found = 0;
  *site = {};
  for (size_t i = 0; i < count && found < kAddresses; ++i)
    if (is_code(words[i])) site->address[found++] = words[i];
  return found;
}

uint32_t number_of(const Site& site) {
  uint64_t hash = 0;
  for (uint64_t a : site.address) hash = (hash ^ a) * 0x9e3779b97f4a7c15ull;
  for (size_t at = (hash >> 40) % kSlots;; at = (at + 1) % kSlots) {
    if (uint32_t n = table->slot[at]) {
      if (!__builtin_memcmp(&table->sites[n - 1], &site, sizeof site)) return n;
      continue;
    }
    if (table->sites.size() == kMostSites || !table->sites.push(site)) return 0;
    return table->slot[at] = static_cast<uint32_t>(table->sites.size());
  }
}

}  // namespace

uint32_t call_site() {
  uint64_t words[kWords];
  // Above us may be less stack than that: read by the kernel, which says how much there was.
  iovec to{words, sizeof words}, from{__builtin_frame_address(0), sizeof words};
  long got =
      sys::call(SYS_process_vm_readv, sys::getpid(), sys::ptr(&to), 1, sys::ptr(&from), 1, 0);
  if (got <= 0) return 0;
  Site site;
  MutexLock guard(lock);
  if (!table && !(table = make<Table>())) return 0;
  if (!pick(words, static_cast<size_t>(got) / 8, &site)) {
    if (table->looked_us && sys::now_us() - table->looked_us < kRefreshUs) return 0;
    look_for_code();
    if (!pick(words, static_cast<size_t>(got) / 8, &site)) return 0;
  }
  return number_of(site);
}

void describe_call_sites(JsonWriter* json) {
  MutexLock guard(lock);
  json->begin_array();
  for (size_t i = 0; table && i < table->sites.size(); ++i) {
    json->begin_array();
    for (size_t k = 0; k < kAddresses && table->sites[i].address[k]; ++k)
      json->address(table->sites[i].address[k]);
    json->end_array();
  }
  json->end_array();
}

}  // namespace gpuckpt::device
