#include "image/image_memory.h"
#include "base/files/file_time.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace gpuckpt::cli {
namespace {

bool unchanged(const std::string& path, const process::MappedFile& file) {
  struct stat st;
  if (path.empty() || stat(path.c_str(), &st) != 0) return false;
  return static_cast<uint64_t>(st.st_size) == file.size && mtime_of(st) == file.mtime_ns;
}

}  // namespace

ImageMemory::ImageMemory(const store::SnapshotReader& reader, const std::vector<Record>& records)
    : reader_(reader), extents_(reader.extents(wire::kSpaceHost)) {
  std::vector<bool> there;
  for (const Record& record : records) {
    process::MappedFile file;
    if (record.type == process::kRecFile && record.get(&file))
      there.push_back(unchanged(record.text(sizeof(file)), file));
    if (record.type == process::kRecVdso && record.get(&vdso_))
      vdso_bytes_ = record.payload.subspan(sizeof(vdso_));
  }
  for (const Record& record : records) {
    process::Vma v;
    if (record.type != process::kRecVma || !record.get(&v)) continue;
    bool file = v.kind == process::kVmaFile || v.kind == process::kVmaFileShared;
    bool ok =
        file && v.object >= 0 && static_cast<size_t>(v.object) < there.size() && there[v.object];
    mappings_.push_back({v, record.text(sizeof(v)), ok});
  }
  std::sort(mappings_.begin(), mappings_.end(),
            [](const Mapping& a, const Mapping& b) { return a.vma.start < b.vma.start; });
  find_modules();
}

void ImageMemory::find_modules() {
  for (const Mapping& m : mappings_) {
    if (m.vma.kind != process::kVmaFile) continue;
    if (m.vma.offset == 0 && (modules_.empty() || modules_.back().path != m.path ||
                              modules_.back().end != m.vma.start)) {
      modules_.push_back({m.path, m.vma.start, m.vma.end, m.file_there});
    } else if (!modules_.empty() && modules_.back().path == m.path) {
      modules_.back().end = m.vma.end;
    }
  }
  if (vdso_.vdso_end > vdso_.vdso_start)
    modules_.push_back({"[vdso]", vdso_.vdso_start, vdso_.vdso_end, false});
}

const ImageModule* ImageMemory::module(uint64_t address) const {
  for (const ImageModule& m : modules_)
    if (address >= m.base && address < m.end) return &m;
  return nullptr;
}

bool ImageMemory::load_file_page(const Mapping& mapping, uint64_t page, uint8_t* out) const {
  if (!mapping.file_there) return false;
  int fd = open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::fill(out, out + kPage, 0);  // the page behind the end of the file reads as zeros
  ssize_t n = pread(fd, out, kPage, page - mapping.vma.start + mapping.vma.offset);
  close(fd);
  return n >= 0;
}

bool ImageMemory::load_page(uint64_t page, uint8_t* out) const {
  if (page >= vdso_.vdso_start && page < vdso_.vdso_end) {
    uint64_t at = page - vdso_.vdso_start;
    if (at + kPage > vdso_bytes_.size()) return false;
    std::copy_n(vdso_bytes_.data() + at, kPage, out);
    return true;
  }
  auto extent =
      std::upper_bound(extents_.begin(), extents_.end(), page,
                       [](uint64_t a, const store::Extent& e) { return a < e.address + e.length; });
  if (extent != extents_.end() && page >= extent->address)
    return reader_.read(wire::kSpaceHost, page, {out, kPage}).ok();
  auto mapping = std::upper_bound(mappings_.begin(), mappings_.end(), page,
                                  [](uint64_t a, const Mapping& m) { return a < m.vma.end; });
  if (mapping == mappings_.end() || page < mapping->vma.start) return false;
  return load_file_page(*mapping, page, out);
}

bool ImageMemory::read(uint64_t address, std::span<uint8_t> out) const {
  while (!out.empty()) {
    uint64_t page = address & ~(kPage - 1), offset = address - page;
    auto [it, fresh] = pages_.try_emplace(page);
    if (fresh) {
      it->second.resize(kPage);
      if (!load_page(page, it->second.data())) it->second.clear();
    }
    if (it->second.empty()) return false;
    size_t n = std::min<size_t>(out.size(), kPage - offset);
    std::copy_n(it->second.data() + offset, n, out.data());
    address += n;
    out = out.subspan(n);
  }
  return true;
}

std::string ImageMemory::text(uint64_t address, size_t limit) const {
  std::string out;
  while (out.size() < limit) {
    auto c = get<char>(address + out.size());
    if (!c || !*c) break;
    out += *c;
  }
  return out;
}

}  // namespace gpuckpt::cli
