#include "restore/files/stored_file.h"

#include <errno.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/files/file_time.h"
#include "restore/files/files_blob.h"

namespace gpuckpt::restore {

using store::Status;

Status file_error(const std::string& path) { return Status::Error(path + ": " + strerror(errno)); }

bool describe(const std::string& path, StoredFile* out) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return false;
  if (S_ISREG(st.st_mode))
    out->kind = StoredFile::kRegular;
  else if (S_ISDIR(st.st_mode))
    out->kind = StoredFile::kFolder;
  else if (S_ISLNK(st.st_mode))
    out->kind = StoredFile::kLink;
  else
    return false;
  out->path = path;
  out->mode = st.st_mode & 07777;
  out->uid = st.st_uid, out->gid = st.st_gid;
  out->dev = st.st_dev, out->ino = st.st_ino;
  out->size = out->kind == StoredFile::kRegular ? static_cast<uint64_t>(st.st_size) : 0;
  out->links = out->kind == StoredFile::kRegular ? st.st_nlink : 1;
  out->mtime_ns = mtime_of(st);
  out->ctime_ns = static_cast<uint64_t>(st.st_ctim.tv_sec) * 1'000'000'000 +
                  static_cast<uint64_t>(st.st_ctim.tv_nsec);
  if (out->kind != StoredFile::kLink) return true;
  char target[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), target, sizeof(target));
  if (n < 0) return false;
  out->target.assign(target, static_cast<size_t>(n));
  return true;
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

Status copy_bytes(int from, uint64_t size, int to, uint64_t at, const std::string& path) {
  if (at == 0 && ioctl(to, FICLONE, from) == 0) return Status::Ok();
  std::vector<char> buffer(std::min<uint64_t>(std::max<uint64_t>(size, 1), kPiece));
  for (uint64_t done = 0; done < size;) {
    const ssize_t n = pread(from, buffer.data(), std::min<uint64_t>(buffer.size(), size - done),
                            static_cast<off_t>(done));
    if (n <= 0) return Status::Error(path + " cannot be read");
    for (ssize_t put = 0; put < n;) {
      const ssize_t w = pwrite(to, buffer.data() + put, static_cast<size_t>(n - put),
                               static_cast<off_t>(at + done) + put);
      if (w <= 0) return file_error("the copy of " + path);
      put += w;
    }
    done += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

bool StoredFile::same_as(const StoredFile& o) const { return path == o.path && same_file_as(o); }

bool StoredFile::same_file_as(const StoredFile& o) const {
  return kind == o.kind && dev == o.dev && ino == o.ino && size == o.size &&
         mtime_ns == o.mtime_ns && ctime_ns == o.ctime_ns;
}

// (Some file systems give one inode number to several files. That is of no harm to files with one
// name.)
std::string StoredFile::key() const {
  return links > 1 ? std::to_string(dev) + ":" + std::to_string(ino) : path;
}

nlohmann::json to_json(const StoredFile& f) {
  nlohmann::json j = {{"kind", static_cast<int>(f.kind)},
                      {"path", name_to_json(f.path)},
                      {"mode", f.mode},
                      {"uid", f.uid},
                      {"gid", f.gid},
                      {"dev", f.dev},
                      {"ino", f.ino},
                      {"size", f.size},
                      {"mtime_ns", f.mtime_ns},
                      {"ctime_ns", f.ctime_ns}};
  if (f.space) j["space"] = f.space;
  if (f.links > 1) j["links"] = f.links;
  if (f.kind == StoredFile::kLink) j["target"] = name_to_json(f.target);
  return j;
}

bool from_json(const nlohmann::json& j, StoredFile* out) {
  try {
    const int kind = j.at("kind").get<int>();
    if (kind < StoredFile::kRegular || kind > StoredFile::kLink) return false;
    out->kind = static_cast<StoredFile::Kind>(kind);
    out->path = name_from_json(j.at("path"));
    out->mode = j.at("mode").get<uint32_t>() & 07777;
    out->uid = j.at("uid").get<uint32_t>();
    out->gid = j.at("gid").get<uint32_t>();
    out->dev = j.at("dev").get<uint64_t>();
    out->ino = j.at("ino").get<uint64_t>();
    out->size = j.at("size").get<uint64_t>();
    out->mtime_ns = j.at("mtime_ns").get<uint64_t>();
    out->ctime_ns = j.at("ctime_ns").get<uint64_t>();
    out->space = j.value("space", uint64_t{0});
    out->links = j.value("links", uint64_t{1});
    if (j.contains("target")) out->target = name_from_json(j.at("target"));
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return out->path.starts_with("/") && (out->path + "/").find("/../") == std::string::npos;
}

std::vector<StoredFile> stored_files(const nlohmann::json& blob) {
  return files_in<StoredFile>(blob, "stored");
}

std::vector<std::string> paths_in(const nlohmann::json& blob, const char* key) {
  std::vector<std::string> out;
  auto list = blob.find(key);
  if (list == blob.end() || !list->is_array()) return out;
  for (const auto& j : *list) {
    try {
      std::string path = name_from_json(j);
      if (path.starts_with("/")) out.push_back(std::move(path));
    } catch (const nlohmann::json::exception&) {
    }
  }
  return out;
}

std::vector<std::string> folders_in(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    std::string folder = text.substr(at, end - at);
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (folder.starts_with("/") && folder.size() > 1) out.push_back(folder);
    at = end + 1;
  }
  return out;
}

}  // namespace gpuckpt::restore
