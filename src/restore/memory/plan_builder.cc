#include "restore/memory/plan_builder.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "restore/memory/vdso.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

constexpr uint32_t kMapDroppable = 8;  // MAP_DROPPABLE, Linux 6.11

struct Builder {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(sizeof(Plan));
  uint64_t add(const void* from, uint64_t n, uint64_t alignment = 16) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    uint64_t at = bytes.size();
    const uint8_t* p = static_cast<const uint8_t*>(from);
    bytes.insert(bytes.end(), p, p + n);
    return at;
  }
  template <typename T>
  uint64_t add(const std::vector<T>& v) {
    return add(v.data(), v.size() * sizeof(T));
  }
};

// Plans the mappings that the process has inherited, and what is kept for them until all are
// mapped.
void plan_inherited(const Memory& memory, std::vector<PlanMap>* maps, Builder* b, Plan* p) {
  std::vector<process::Span> kept, foreign;
  for (const Memory::Inherited& i : memory.inherited) {
    std::lower_bound(maps->begin(), maps->end(), i.range.start, [](const PlanMap& m, uint64_t a) {
      return m.start < a;
    })->inherited = i.at;
    kept.push_back({i.at, i.at + (i.range.end - i.range.start)});
  }
  std::sort(kept.begin(), kept.end(),
            [](const Span& a, const Span& x) { return a.start < x.start; });
  for (const AddressRange& r : memory.foreign) foreign.push_back({r.start, r.end});
  p->kept = b->add(kept), p->kept_count = kept.size();
  p->foreign = b->add(foreign), p->foreign_count = foreign.size();
}

PlanMap plan_map(const Vma& v, const PlanFds& fds, const Memory& memory) {
  PlanMap m{};
  m.start = v.start, m.end = v.end, m.offset = v.offset;
  m.prot = v.prot;
  m.fd = -1;
  m.advice = v.flags;
  switch (v.kind) {
    case kVmaFile:
      m.flags = MAP_PRIVATE;
      m.fd = fds.files[static_cast<size_t>(v.object)];
      break;
    case kVmaFileShared: {
      m.flags = MAP_SHARED;
      m.fd = fds.files[static_cast<size_t>(v.object)];
      const auto other = fds.files_to_write.find(static_cast<size_t>(v.object));
      if (v.flags & kVmaMayWrite && other != fds.files_to_write.end()) m.fd = other->second;
      break;
    }
    case kVmaShared: {
      m.flags = MAP_SHARED;
      m.fd = fds.shared[static_cast<size_t>(v.object)];
      const auto other = fds.shared_to_read.find(static_cast<size_t>(v.object));
      if (v.flags & kVmaNeverWrite && other != fds.shared_to_read.end()) m.fd = other->second;
      if (auto s = memory.segments.find(static_cast<size_t>(v.object)); s != memory.segments.end())
        m.segment = static_cast<uint32_t>(s->second) + 1;
      break;
    }
    case kVmaPlaceholder:
      m.flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      m.prot = 0;
      m.offset = 0;
      m.advice = 0;
      break;
    default:
      m.flags = MAP_PRIVATE | MAP_ANONYMOUS;
      m.offset = 0;
      if (v.flags & kVmaDroppable) m.flags = kMapDroppable | MAP_ANONYMOUS;
      if (v.flags & kVmaHugetlb) m.flags |= MAP_HUGETLB | v.flags >> kVmaHugeShift << kVmaHugeShift;
      if (v.flags & kVmaGrowsDown) m.flags |= MAP_GROWSDOWN;
  }
  if (v.flags & kVmaNoReserve) m.flags |= MAP_NORESERVE;
  return m;
}

bool is_free(const Image& image, uint64_t start, uint64_t end) {
  for (const auto& [v, path] : image.vmas)
    if (v.start < end && start < v.end) return false;
  const uint64_t first = image.vdso.vvar_start ? image.vdso.vvar_start : image.vdso.vdso_start;
  return !(has_vdso(image) && first < end && start < image.vdso.vdso_end);
}

// Finds an address for this kernel's vdso beside the program's memory, its old vdso and the
// launcher's gaps: the vdso begins there, its data pages are below. 0: there is none.
uint64_t place_for_vdso(const Image& image, const Plan& p) {
  constexpr uint64_t kBelow = kGapVdso, kAbove = kGapVdso, kGrowth = 1ull << 30,
                     kTop = (1ull << 47) - 4096;
  auto fits = [&](uint64_t at) {
    if (at < 2 * kBelow || at + kAbove > kTop || !is_free(image, at - kBelow, at + kAbove))
      return false;
    for (uint64_t gap : p.gap)
      if (gap && gap < at + kAbove && at - kBelow < gap + p.gap_bytes) return false;
    // Stacks grow down and the heap grows up.
    for (const auto& [v, path] : image.vmas)
      if (v.flags & kVmaGrowsDown && at < v.start && v.start - at < kGrowth) return false;
    return at < image.mm.brk || at - image.mm.brk >= kGrowth;
  };
  const uint64_t first = image.vdso.vdso_end + kBelow;
  if (fits(first)) return first;
  for (const auto& [v, path] : image.vmas)
    for (uint64_t at : {v.end + kBelow, v.end + 4 * kGrowth})
      if (fits(at)) return at;
  return 0;
}

std::vector<PlanBlob> plan_blobs(const Memory& memory, Builder* b) {
  std::vector<PlanBlob> blobs;
  for (const auto& [name, bytes] : memory.blobs) {
    PlanBlob blob{};
    blob.offset = b->add(bytes);
    blob.bytes = bytes.size();
    strncpy(blob.name, name.c_str(), sizeof(blob.name) - 1);
    blobs.push_back(blob);
  }
  return blobs;
}

std::vector<PlanFd> plan_descriptors(const Image& image) {
  std::vector<PlanFd> fds;
  for (const auto& [d, path] : image.fds)
    if (!(d.fd_flags & kFdInFlight))
      fds.push_back({d.fd, d.fd_flags,
                     d.kind == kFdMemory && d.value[1] && d.description == d.fd
                         ? static_cast<uint32_t>(d.value[0]) & ~kEarlySeals
                         : 0,
                     0});
  return fds;
}

// Where the launcher fits between the program's mappings.
bool find_gaps(const Image& image, Plan* p) {
  // Steps are larger above 8 TiB, because AddressSanitizer's shadow takes everything below 16 TiB.
  const auto step = [](uint64_t at) { return at < 8ull << 40 ? 1ull << 30 : 64ull << 30; };
  int found = 0;
  for (uint64_t at = 4ull << 30; at < 112ull << 40 && found < kGaps; at += step(at))
    if (is_free(image, at, at + p->gap_bytes + 4096)) p->gap[found++] = at;
  return found > 0;
}

}  // namespace

std::vector<uint8_t> build_plan(const Image& image, const Memory& memory, const PlanFds& fds,
                                uint32_t flags, std::string* error) {
  Builder b;
  Plan p{};
  p.magic = kPlanMagic;
  p.version = kPlanVersion;
  p.flags = flags;

  std::vector<PlanMap> maps;
  for (const auto& [v, path] : image.vmas) maps.push_back(plan_map(v, fds, memory));
  std::sort(maps.begin(), maps.end(),
            [](const PlanMap& a, const PlanMap& x) { return a.start < x.start; });
  for (const PlanFill& f : memory.fills) {
    auto it = std::upper_bound(maps.begin(), maps.end(), f.address,
                               [](uint64_t a, const PlanMap& m) { return a < m.start; });
    (--it)->filled = 1;
  }
  plan_inherited(memory, &maps, &b, &p);
  p.maps = b.add(maps), p.map_count = maps.size();
  p.fills = b.add(memory.fills), p.fill_count = memory.fills.size();
  p.extents = b.add(memory.extents), p.extent_count = memory.extents.size();
  const std::vector<PlanBlob> blobs = plan_blobs(memory, &b);
  p.blobs = b.add(blobs), p.blob_count = blobs.size();
  const std::vector<PlanFd> plan_fds = plan_descriptors(image);
  p.fds = b.add(plan_fds), p.fd_count = plan_fds.size();
  p.process = b.add(image.blob), p.process_bytes = image.blob.size();
  p.auxv = b.add(image.auxv), p.auxv_bytes = image.auxv.size();
  p.mm = image.mm;
  p.vdso = image.vdso;
  p.vdso_at = image.vdso.vdso_start;  // 0: none
  p.entry = image.head.restore_entry;
  p.entry_stack = image.head.restore_stack;
  p.pages_fd = fds.pages, p.device_fd = fds.device, p.exe_fd = fds.exe, p.report_fd = fds.report;
  p.plan_fd = fds.plan, p.highest_fd = fds.highest;
  p.generation = image.head.generation + 1;
  p.steps = memory.steps.value_or(0);
  const bool jumps = has_vdso(image) && !same_vdso(image) && !is_of_this_boot(image);
  if (has_vdso(image) && !image.vdso.vvar_start) p.flags |= kNoVvar;
  if (has_vdso(image) && !same_vdso(image) && !jumps) p.flags |= kPatchVdso;
  if (jumps || p.flags & kPatchVdso) {
    p.jumps = b.add(image.vdso_bytes);
    p.jumps_bytes = image.vdso_bytes.size();
  }
  p.bytes = b.bytes.size();
  p.gap_bytes = (kGapCode + kGapStack + kGapVdso + kGapText + p.bytes + 0xffff) & ~0xffffull;
  const bool found = find_gaps(image, &p);
  if (!found) *error = "the program's address space leaves no room for the launcher";
  if (jumps && found) {
    p.vdso_at = place_for_vdso(image, p);
    if (!p.vdso_at) *error = "the program's address space leaves no room for this kernel's vdso";
    const std::vector<uint8_t> bytes = vdso_of_jumps(image, p.vdso_at);
    memcpy(b.bytes.data() + p.jumps, bytes.data(), bytes.size());
  }
  memcpy(b.bytes.data(), &p, sizeof(p));
  return std::move(b.bytes);
}

}  // namespace gpuckpt::restore
