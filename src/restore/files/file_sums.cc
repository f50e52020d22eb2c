#include "restore/files/file_sums.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "base/descriptors/fd.h"
#include "base/files/file_time.h"
#include "base/procfs/proc.h"
#include "restore/files/files_blob.h"
#include "restore/files/unnoticed_open.h"
#include "restore/files/written_descriptors.h"
#include "store/io/json_text.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

constexpr uint64_t kBlock = 1 << 20;
constexpr uint64_t kMostBlocks = 1024;          // of one file; a larger one is sampled
constexpr uint64_t kMostBefore = 256ull << 20;  // read before the stop, which waits for that
// File times have the resolution of the kernel's clock tick: a write shortly before the stop and
// one after it may leave the same time.
constexpr uint64_t kTickNs = 20'000'000;

bool read_block(int fd, uint64_t at, uint64_t bytes, std::vector<uint8_t>* out) {
  out->resize(bytes);
  for (uint64_t got = 0; got < bytes;) {
    const ssize_t n = pread(fd, out->data() + got, bytes - got, static_cast<off_t>(at + got));
    if (n <= 0) return false;
    got += static_cast<uint64_t>(n);
  }
  return true;
}

uint64_t sum_of(const std::vector<uint8_t>& bytes, uint64_t length) {
  return XXH3_64bits(bytes.data(), length);
}

uint64_t stride_of(uint64_t size) {
  const uint64_t blocks = (size + kBlock - 1) / kBlock;
  return std::max<uint64_t>(1, (blocks + kMostBlocks - 1) / kMostBlocks);
}

// The parts of the file that the program mapped shared, for writing or not: those bytes are in the
// snapshot.
std::vector<std::pair<uint64_t, uint64_t>> mapped_parts(const Image& image, uint64_t dev,
                                                        uint64_t ino) {
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (const auto& [o, path] : image.shared) {
    // (Mappings show devices in the form of /proc/PID/maps.)
    const uint64_t shown = device_number(major(dev), minor(dev));
    if (o.kind != kSharedFile || o.dev != shown || o.ino != ino) continue;
    for (const auto& [v, name] : image.vmas)
      if (v.kind == kVmaShared && v.object >= 0 && static_cast<uint32_t>(v.object) == o.index)
        out.emplace_back(v.offset, v.offset + (v.end - v.start));
  }
  return out;
}

// Files that no process may open without breaking a lease of the program. Other processes do not
// have them open either, so only the holder could overwrite them.
std::set<std::pair<uint64_t, uint64_t>> leased_for_writing(const std::vector<Image>& images) {
  std::set<std::pair<uint64_t, uint64_t>> out;
  for (const Image& image : images)
    for (const FileLock& lock : image.file_locks)
      for (const auto& [d, path] : image.fds)
        if (lock.kind == kLockLease && lock.type == F_WRLCK && lock.fd == d.fd)
          out.insert({d.dev, d.ino});
  return out;
}

}  // namespace

std::vector<uint64_t> SummedFile::blocks() const {
  std::vector<uint64_t> out;
  const uint64_t count = (size + kBlock - 1) / kBlock;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % stride && i + 1 != count) continue;
    const uint64_t from = i * kBlock, to = std::min(size, from + kBlock);
    if (std::none_of(mapped.begin(), mapped.end(),
                     [&](const auto& m) { return m.first < to && from < m.second; }))
      out.push_back(i);
  }
  return out;
}

nlohmann::json to_json(const SummedFile& f) {
  std::string sums;
  char text[20];
  for (uint64_t sum : f.sums) {
    snprintf(text, sizeof(text), "%016lx", sum);
    sums += text;
  }
  nlohmann::json j = {{"path", name_to_json(f.path)},
                      {"dev", f.dev},
                      {"ino", f.ino},
                      {"size", f.size},
                      {"mtime_ns", f.mtime_ns},
                      {"stride", f.stride},
                      {"sums", sums},
                      {"in_place", f.in_place}};
  if (!f.mapped.empty()) j["mapped"] = f.mapped;
  return j;
}

bool from_json(const nlohmann::json& j, SummedFile* out) {
  try {
    out->path = name_from_json(j.at("path"));
    out->dev = j.at("dev").get<uint64_t>();
    out->ino = j.at("ino").get<uint64_t>();
    out->size = j.at("size").get<uint64_t>();
    out->mtime_ns = j.at("mtime_ns").get<uint64_t>();
    out->stride = j.at("stride").get<uint64_t>();
    out->in_place = j.at("in_place").get<bool>();
    if (j.contains("mapped"))
      out->mapped = j.at("mapped").get<std::vector<std::pair<uint64_t, uint64_t>>>();
    const std::string sums = j.at("sums").get<std::string>();
    for (size_t i = 0; i + 16 <= sums.size(); i += 16)
      out->sums.push_back(strtoull(sums.substr(i, 16).c_str(), nullptr, 16));
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return out->stride > 0 && out->size < 1ull << 62 && out->sums.size() == out->blocks().size();
}

void FileSums::look_at(int fd, uint64_t size, Look* out) {
  out->size = size;
  std::vector<uint8_t> bytes;
  const uint64_t stride = stride_of(size), count = (size + kBlock - 1) / kBlock;
  for (uint64_t i = 0; i < count && looked_at_ < kMostBefore; ++i) {
    if (i % stride && i + 1 != count) continue;
    const uint64_t length = std::min(kBlock, size - i * kBlock);
    if (!read_block(fd, i * kBlock, length, &bytes)) return;
    looked_at_ += length;
    if (length == kBlock)
      out->whole[i] = sum_of(bytes, length);
    else
      out->last = i, out->last_bytes = length, out->last_sum = sum_of(bytes, length);
  }
}

void FileSums::look(int64_t pid) {
  for (const WrittenDescriptor& d : written_descriptors(pid)) {
    const std::pair key(d.st.st_dev, d.st.st_ino);
    if (d.leased || looks_.count(key) || !d.st.st_size || looked_at_ >= kMostBefore) continue;
    Fd file = open_unnoticed(d.link);
    if (file) look_at(file.get(), static_cast<uint64_t>(d.st.st_size), &looks_[key]);
  }
}

void FileSums::sum(SummedFile* f, uint64_t stopped_ns, bool stands) const {
  struct stat st;
  Fd file = open_unnoticed(f->path);
  if (!file || fstat(file.get(), &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino) {
    // A restore opens another file in any case, so this one is neither read nor renamed.
    f->path.clear();
    return;
  }
  auto found = looks_.find({f->dev, f->ino});
  const Look* before = found == looks_.end() ? nullptr : &found->second;
  bool differs = false;
  std::vector<uint8_t> bytes;
  for (uint64_t i : f->blocks()) {
    const uint64_t length = std::min(kBlock, f->size - i * kBlock);
    if (!read_block(file.get(), i * kBlock, length, &bytes)) {
      differs = true;  // it was truncated
      f->sums.push_back(0);
      continue;
    }
    f->sums.push_back(sum_of(bytes, length));
    if (!before) continue;
    auto whole = before->whole.find(i);
    if (whole != before->whole.end() && length == kBlock)
      differs |= whole->second != f->sums.back();
    if (before->last == i && before->last_bytes && before->last_bytes <= length)
      differs |= before->last_sum != sum_of(bytes, before->last_bytes);
  }
  const bool untouched = fstat(file.get(), &st) == 0 && mtime_of(st) == f->mtime_ns &&
                         (stands || f->mtime_ns + kTickNs < stopped_ns);
  f->in_place = differs && !untouched;
}

std::vector<SummedFile> FileSums::sum(const std::vector<Image>& images,
                                      const std::vector<SummedFile>& parent, bool stands) const {
  std::vector<SummedFile> out;
  std::set<std::pair<uint64_t, uint64_t>> seen = leased_for_writing(images);
  for (const Image& image : images) {
    for (const auto& [d, path] : image.fds) {
      if (d.kind != kFdFile || (d.flags & O_ACCMODE) == O_RDONLY || !d.size ||
          !seen.insert({d.dev, d.ino}).second)
        continue;
      SummedFile f;
      f.path = path, f.dev = d.dev, f.ino = d.ino, f.size = d.size, f.mtime_ns = d.mtime_ns;
      f.stride = stride_of(f.size);
      for (const Image& other : images)
        for (const auto& part : mapped_parts(other, f.dev, f.ino)) f.mapped.push_back(part);
      auto same = std::find_if(parent.begin(), parent.end(), [&](const SummedFile& p) {
        return p.dev == f.dev && p.ino == f.ino && p.size == f.size && p.mtime_ns == f.mtime_ns &&
               p.path == f.path && p.mapped == f.mapped && !p.in_place;
      });
      if (same != parent.end())
        f.sums = same->sums;
      else
        sum(&f, image.head.realtime_us * 1000, stands);
      if (!f.path.empty()) out.push_back(std::move(f));
    }
  }
  return out;
}

std::string changed_in_place(const SummedFile& f) {
  struct stat st;
  Fd file = open_unnoticed(f.path);
  if (!file || fstat(file.get(), &st) != 0 || static_cast<uint64_t>(st.st_size) < f.size) return "";
  if (static_cast<uint64_t>(st.st_size) == f.size && mtime_of(st) == f.mtime_ns) return "";
  constexpr char kWayOut[] =
      "; the program's memory does not match it any more. Put the file back as it was, go on all "
      "the "
      "same with --files=keep, or run with --files-in-snapshot, which keeps such files";
  if (f.in_place)
    return "was being overwritten in place when the snapshot was taken, and has changed since" +
           std::string(kWayOut);
  std::vector<uint8_t> bytes;
  size_t at = 0;
  for (uint64_t i : f.blocks()) {
    const uint64_t length = std::min(kBlock, f.size - i * kBlock);
    if (read_block(file.get(), i * kBlock, length, &bytes) && sum_of(bytes, length) == f.sums[at++])
      continue;
    return "was overwritten in place after the snapshot (between bytes " +
           std::to_string(i * kBlock) + " and " + std::to_string(i * kBlock + length) + " of the " +
           std::to_string(f.size) + " that it had)" + kWayOut;
  }
  return "";
}

nlohmann::json read_files_blob(const store::SnapshotReader& reader) {
  std::vector<uint8_t> text;
  if (!reader.blob("files", &text).ok()) return nlohmann::json::object();
  auto j = store::parse_json(text);
  return j.is_object() ? j : nlohmann::json::object();
}

std::vector<SummedFile> summed_files(const nlohmann::json& files_blob) {
  return files_in<SummedFile>(files_blob, "summed");
}

}  // namespace gpuckpt::restore
