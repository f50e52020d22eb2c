#include "restore/memory/fill.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <mutex>

#include "gpuckpt/wire.h"
#include "restore/memory/common_pages.h"

namespace gpuckpt::restore {

using namespace process;
using store::Extent;
using store::SnapshotReader;
using store::Status;

namespace {

constexpr uint64_t kWorthIt = 1 << 20;  // bytes of data in a mapping

// Whether the kernel makes large pages without being advised to.
bool large_pages_everywhere() {
  char line[128] = "";
  if (FILE* file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re")) {
    if (!fgets(line, sizeof(line), file)) line[0] = 0;
    fclose(file);
  }
  return strstr(line, "[always]");
}

bool gets_large_pages(const Vma& v, bool everywhere) {
  return v.flags & kVmaHugePage || (everywhere && !(v.flags & kVmaNoHugePage));
}

// The range that ends behind `address`.
std::vector<AddressRange>::const_iterator range_at(const std::vector<AddressRange>& ranges,
                                                   uint64_t address) {
  return std::upper_bound(ranges.begin(), ranges.end(), address,
                          [](uint64_t a, const AddressRange& r) { return a < r.end; });
}

Status write_by_call(pid_t pid, uint64_t address, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    iovec local{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    iovec remote{reinterpret_cast<void*>(address), bytes.size()};
    ssize_t n = process_vm_writev(pid, &local, 1, &remote, 1, 0);
    if (n < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES))
      return Status::Refused("this process may not write to another one");
    if (n <= 0)
      return Status::Error(std::string("cannot fill memory: ") + strerror(n < 0 ? errno : EFAULT));
    address += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status::Ok();
}

}  // namespace

std::vector<Extent> data_extents(const SnapshotReader& reader) {
  std::vector<Extent> all = reader.extents(wire::kSpaceHost);
  std::erase_if(all, [](const Extent& e) { return e.zero; });
  return all;
}

std::vector<Extent>::const_iterator extent_at(const std::vector<Extent>& all, uint64_t address) {
  return std::upper_bound(all.begin(), all.end(), address,
                          [](uint64_t a, const Extent& e) { return a < e.address + e.length; });
}

std::vector<AddressRange> ranges_for_userfaultfd(const Image& image, const SnapshotReader& reader) {
  const std::vector<Extent> data = data_extents(reader);
  constexpr uint32_t kNever =
      kVmaGrowsDown | kVmaWipeOnFork | kVmaLocked | kVmaDroppable | kVmaHugetlb;
  std::vector<AddressRange> out;
  for (const auto& [v, path] : image.vmas) {
    if (v.kind != kVmaAnonymous || (v.flags & kNever)) continue;
    uint64_t bytes = 0;
    for (auto e = extent_at(data, v.start); e != data.end() && e->address < v.end; ++e)
      bytes += std::min(e->address + e->length, v.end) - std::max(e->address, v.start);
    if (bytes >= kWorthIt) out.push_back({v.start, v.end});
  }
  std::sort(out.begin(), out.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  return out;
}

ProcessMemory::ProcessMemory(pid_t pid, Fd userfaultfd, const Image& image,
                             const SnapshotReader& reader)
    : pid_(pid), userfaultfd_(std::move(userfaultfd)) {
  uffdio_api api{UFFD_API, 0, 0};
  if (!userfaultfd_ || ioctl(userfaultfd_.get(), UFFDIO_API, &api) != 0) return;
  const bool everywhere = large_pages_everywhere();
  std::vector<AddressRange> large;
  for (const auto& [v, path] : image.vmas)
    if (gets_large_pages(v, everywhere)) large.push_back({v.start, v.end});
  for (const AddressRange& r : ranges_for_userfaultfd(image, reader)) {
    if (std::any_of(large.begin(), large.end(),
                    [&](const AddressRange& l) { return l.start == r.start; }))
      continue;
    uffdio_register area{{r.start, r.end - r.start}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(userfaultfd_.get(), UFFDIO_REGISTER, &area) == 0) ranges_.push_back(r);
  }
}

// Within one registered range. (A write to a missing page by a system call would wait for this
// process itself.)
Status ProcessMemory::copy_in(uint64_t address, std::span<const uint8_t> bytes) const {
  constexpr size_t kPage = 4096;
  while (!bytes.empty()) {
    uffdio_copy c{address, reinterpret_cast<uint64_t>(bytes.data()), bytes.size(),
                  UFFDIO_COPY_MODE_DONTWAKE, 0};
    size_t done = bytes.size();
    if (ioctl(userfaultfd_.get(), UFFDIO_COPY, &c) != 0) {
      const int error = errno;
      done = c.copy > 0 ? static_cast<size_t>(c.copy) : 0;
      if (!done && error == EEXIST) {
        done = std::min(bytes.size(), kPage);
        if (Status s = write_by_call(pid_, address, bytes.first(done)); !s.ok()) return s;
      } else if (!done && error != EAGAIN) {
        return Status::Error(std::string("cannot fill memory: ") + strerror(error));
      }
    }
    address += done;
    bytes = bytes.subspan(done);
  }
  return Status::Ok();
}

Status ProcessMemory::write(uint64_t address, std::span<const uint8_t> bytes) const {
  while (!bytes.empty()) {
    auto range = range_at(ranges_, address);
    const bool inside = range != ranges_.end() && range->start <= address;
    const uint64_t end = range == ranges_.end() ? ~0ull : inside ? range->end : range->start;
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), end - address));
    if (Status s = inside ? copy_in(address, part) : write_by_call(pid_, address, part); !s.ok())
      return s;
    address += part.size();
    bytes = bytes.subspan(part.size());
  }
  return Status::Ok();
}

Status fill_process(const SnapshotReader& reader, const std::vector<AddressRange>& there,
                    unsigned threads, const ProcessMemory& memory) {
  std::mutex mutex;
  Status failure;
  auto put = [&](uint64_t address, std::span<const uint8_t> bytes) {
    Status s = memory.write(address, bytes);
    if (s.ok()) return true;
    std::lock_guard guard(mutex);
    failure = s;
    return false;
  };
  Status status = there.empty() ? reader.read_all(wire::kSpaceHost, threads, put)
                                : reader.read_parts(wire::kSpaceHost, without({{0, ~0ull}}, there),
                                                    threads, put, nullptr);
  return failure.ok() ? status : failure;
}

Status fill_all_but(const SnapshotReader& reader, const std::vector<AddressRange>& ranges,
                    const ProcessMemory& memory) {
  std::vector<uint8_t> buffer(1 << 20);
  for (const Extent& e : data_extents(reader)) {
    for (uint64_t at = e.address, end = e.address + e.length; at < end;) {
      auto range = range_at(ranges, at);
      if (range != ranges.end() && range->start <= at) {
        at = range->end;
        continue;
      }
      uint64_t n = std::min<uint64_t>(end - at, buffer.size());
      if (range != ranges.end()) n = std::min(n, range->start - at);
      std::span<uint8_t> bytes(buffer.data(), n);
      if (Status s = reader.read(wire::kSpaceHost, at, bytes); !s.ok()) return s;
      if (Status s = memory.write(at, bytes); !s.ok()) return s;
      at += n;
    }
  }
  return Status::Ok();
}

}  // namespace gpuckpt::restore
