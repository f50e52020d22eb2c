#include "restore/files/stored_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "base/files/file_time.h"
#include "gpuckpt/wire.h"
#include "restore/files/files_blob.h"
#include "restore/files/unnoticed_open.h"
#include "restore/files/written_descriptors.h"
#include "store/io/printable.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

constexpr uint64_t kTickNs = 20'000'000;  // a file's time may be this much older than its change
constexpr uint64_t kPiece = 1 << 20;
constexpr size_t kMostClones = 256;  // each is an open file
constexpr char kAside[] = ".gpuckpt-later-";

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

Status file_error(const std::string& path) { return Status::Error(path + ": " + strerror(errno)); }

// Devices, sockets and pipes have no contents.
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

// Copies [0, size) of one file behind what is at `at` of the other.
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

}  // namespace

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

namespace {

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

}  // namespace

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

// --- the writer's side

Status FileKeeper::list_folder(const std::string& folder, std::vector<StoredFile>* out) const {
  std::vector<std::string> open = {folder};
  while (!open.empty()) {
    const std::string path = open.back();
    open.pop_back();
    StoredFile self;
    if (!describe(path, &self)) continue;  // removed meanwhile, or nothing that has contents
    const bool enter = self.kind == StoredFile::kFolder;
    out->push_back(std::move(self));
    if (!enter) continue;
    std::unique_ptr<DIR, int (*)(DIR*)> all(opendir(path.c_str()), closedir);
    if (!all) return file_error(path);
    while (const dirent* entry = readdir(all.get())) {
      const std::string name = entry->d_name, child = path + "/" + name;
      if (name == "." || name == ".." || name.find(kAside) != std::string::npos ||
          child == staging_)
        continue;
      open.push_back(child);
    }
  }
  return Status::Ok();
}

Status FileKeeper::list(const std::vector<int64_t>& processes, std::vector<StoredFile>* out) const {
  for (const std::string& folder : folders_) {
    StoredFile self;
    if (!describe(folder, &self) || self.kind != StoredFile::kFolder)
      return Status::Error(folder +
                           ", which is to be in the snapshot (--files-in-snapshot), is no "
                           "folder that can be read");
    if (Status s = list_folder(folder, out); !s.ok()) return s;
  }
  std::set<std::string> seen;
  for (const StoredFile& f : *out) seen.insert(f.path);
  for (int64_t process : processes)
    for (const WrittenDescriptor& d : written_descriptors(process)) {
      if (d.leased && (d.written || seen.count(d.path)))
        return Status::Refused(
            d.path + " is to be in the snapshot (--files-in-snapshot), and process " +
            std::to_string(process) +
            " has a lease for writing on it (fcntl F_SETLEASE): to read the file would break the "
            "lease; give up the lease, or take the snapshot without --files-in-snapshot");
      if (!d.written) continue;
      StoredFile f;
      // Another file that has taken its name is left alone.
      if (is_below(d.path, staging_) || !seen.insert(d.path).second || !describe(d.path, &f) ||
          f.dev != d.st.st_dev || f.ino != d.st.st_ino)
        continue;
      out->push_back(std::move(f));
    }
  return Status::Ok();
}

const StoredFile* FileKeeper::in_parent(const StoredFile& file) const {
  auto found = parent_.find(file.path);
  return found != parent_.end() && found->second.same_as(file) ? &found->second : nullptr;
}

const FileKeeper::Copy* FileKeeper::copy_of(const StoredFile& file) const {
  auto found = copies_.find(file.key());
  return found != copies_.end() && found->second.of.same_file_as(file) &&
                 file.ctime_ns + kTickNs < found->second.copied_ns
             ? &found->second
             : nullptr;
}

Status FileKeeper::new_staging_file(std::shared_ptr<Fd>* out) const {
  Fd file(open(staging_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) {
    std::string name = staging_ + "/files-XXXXXX";
    file = Fd(mkostemp(name.data(), O_CLOEXEC));
    if (!file) return file_error(staging_);
    unlink(name.c_str());
  }
  *out = std::make_shared<Fd>(std::move(file));
  return Status::Ok();
}

Status FileKeeper::copy(const StoredFile& file, uint64_t* bytes) {
  Fd from = open_unnoticed(file.path, O_NOFOLLOW);
  struct stat st;
  // Between the list and here the program may have removed or cut it: not while it stands.
  if (!from || fstat(from.get(), &st) != 0) {
    if (errno == ENOENT) return Status::Ok();
    return file_error(file.path + ", which is to be in the snapshot");
  }
  Copy made{file, nullptr, 0, now_ns()};
  const uint64_t size = std::min<uint64_t>(file.size, static_cast<uint64_t>(st.st_size));
  if (can_clone_ && copies_.size() < kMostClones) {
    if (Status s = new_staging_file(&made.file); !s.ok()) return s;
    can_clone_ = ioctl(made.file->get(), FICLONE, from.get()) == 0;
  }
  if (!can_clone_ || !made.file) {
    if (!common_)
      if (Status s = new_staging_file(&common_); !s.ok()) return s;
    made.file = common_;
    made.at = common_used_;
    if (Status s = copy_bytes(from.get(), size, common_->get(), common_used_, file.path); !s.ok())
      return s;
    common_used_ += size;
    *bytes += size;
  }
  copies_[file.key()] = std::move(made);
  return Status::Ok();
}

Status FileKeeper::prepare(const std::vector<int64_t>& processes, std::vector<StoredFile> parent,
                           uint64_t patience_ms) {
  for (StoredFile& f : parent) {
    std::string path = f.path;
    parent_[path] = std::move(f);
  }
  std::vector<StoredFile> now;
  if (Status s = list(processes, &now); !s.ok()) return s;
  const uint64_t begin = now_ns();
  uint64_t bytes = 0;
  for (const StoredFile& f : now) {
    if (f.kind != StoredFile::kRegular || !f.size || in_parent(f) || copy_of(f)) continue;
    if (now_ns() - begin > patience_ms * 1'000'000) break;
    if (Status s = copy(f, &bytes); !s.ok()) {
      // What changes under our hands is copied when nothing changes any more.
      if (s.code() != kExitError) return s;
      copies_.erase(f.key());
    }
  }
  return Status::Ok();
}

Status FileKeeper::take(const std::vector<int64_t>& processes) {
  files_.clear();
  if (Status s = list(processes, &files_); !s.ok()) return s;
  std::set<std::string> copied;  // nothing changes now
  for (const StoredFile& f : files_) {
    if (f.kind != StoredFile::kRegular || !f.size || in_parent(f) || copy_of(f)) continue;
    if (!copied.insert(f.key()).second) continue;
    if (Status s = copy(f, &taken_bytes_); !s.ok()) return s;
    if (!copies_.count(f.key()))
      return Status::Error(f.path +
                           " went while it was being stored in the snapshot: some process "
                           "outside of the program changes files that belong to it");
  }
  taken_ = true;
  return Status::Ok();
}

Status FileKeeper::store(store::SnapshotWriter& writer) {
  std::set<uint64_t> used;
  for (const StoredFile& f : files_)
    if (const StoredFile* old = in_parent(f)) used.insert(old->space);
  uint64_t next = wire::kSpaceStoredBase;
  std::vector<uint8_t> buffer(kPiece);
  std::map<std::string, uint64_t> stored;  // of files with several names: where one of them is
  for (StoredFile& f : files_) {
    if (f.kind != StoredFile::kRegular || !f.size) continue;
    uint64_t& space = stored[f.key()];
    if (space) {
      f.space = space;
      continue;
    }
    if (const StoredFile* old = in_parent(f)) {
      f.space = space = old->space;
      if (Status s = writer.put_same(f.space, 0, f.size); !s.ok()) return s;
      continue;
    }
    while (used.count(next)) ++next;
    f.space = space = next++;
    if (f.space >= wire::kSpaceDeviceBase)
      return Status::Error("there are more files to be stored in the snapshot than it can hold");
    const Copy& made = copies_.at(f.key());
    for (uint64_t at = 0; at < f.size;) {
      const uint64_t length = std::min<uint64_t>(kPiece, f.size - at);
      const ssize_t n =
          pread(made.file->get(), buffer.data(), length, static_cast<off_t>(made.at + at));
      if (n != static_cast<ssize_t>(length))
        return Status::Error("the copy of " + f.path + " in the store's folder cannot be read");
      if (Status s = writer.put(f.space, at, {buffer.data(), length}); !s.ok()) return s;
      at += length;
    }
  }
  return Status::Ok();
}

// --- a restore's side

namespace {

namespace fs = std::filesystem;

std::string random_text() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = now_ns();
  char text[20];
  snprintf(text, sizeof(text), "%012lx", number >> 16);
  return text;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

void give_attributes(int fd, const StoredFile& f) {
  // (An ordinary user's files are his own anyway.)
  if (fchown(fd, f.uid, f.gid) != 0 && geteuid() == 0)
    store::say("gpuckpt: warning: %s: owner %u:%u cannot be given back: %s\n", f.path.c_str(),
               f.uid, f.gid, strerror(errno));
  fchmod(fd, f.mode);
  const timespec times[2] = {{0, UTIME_OMIT},
                             {static_cast<time_t>(f.mtime_ns / 1'000'000'000),
                              static_cast<long>(f.mtime_ns % 1'000'000'000)}};
  futimens(fd, times);
}

// Many files that are written so before the first fsync() take one commit of the file system's
// journal, and not one each.
void begin_to_write(int fd) { sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }

}  // namespace

// Beside the folder; inside of it where that is not possible (a mount point).
std::string FilesPutBack::place_aside(const std::string& path) {
  std::string root = path;
  for (const std::string& folder : folders_)
    if (is_below(path, folder)) root = folder;
  std::string& aside = aside_[root];
  if (aside.empty()) {
    aside = root + kAside + random_text();
    struct stat inside, outside;
    const bool movable =
        stat(root.c_str(), &inside) == 0 && stat(parent_of(root).c_str(), &outside) == 0 &&
        inside.st_dev == outside.st_dev && access(parent_of(root).c_str(), W_OK) == 0;
    if (!movable && root != path) aside = root + "/" + kAside + random_text();
  }
  return root == path ? aside : aside + path.substr(root.size());
}

Status FilesPutBack::set_aside(const std::string& path) {
  const std::string to = place_aside(path);
  std::error_code error;
  fs::create_directories(parent_of(to), error);
  if (rename(path.c_str(), to.c_str()) != 0)
    return file_error("setting aside what " + path + " is now, as " + to);
  steps_.push_back({to, path});
  return Status::Ok();
}

// Before it is overwritten.
Status FilesPutBack::copy_aside(const std::string& path) {
  const std::string to = place_aside(path);
  std::error_code error;
  fs::create_directories(parent_of(to), error);
  StoredFile now;
  Fd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Fd copy(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!from || !copy || !describe(path, &now))
    return file_error("setting aside what " + path + " holds now, as " + to);
  steps_.push_back({to, ""});
  if (Status s = copy_bytes(from.get(), now.size, copy.get(), 0, path); !s.ok()) return s;
  give_attributes(copy.get(), now);
  steps_.back() = {to, path, true};
  overwritten_[{now.dev, now.ino}] = steps_.size() - 1;
  return Status::Ok();
}

// What was not there at the snapshot.
Status FilesPutBack::set_others_aside(const std::string& folder) {
  std::unique_ptr<DIR, int (*)(DIR*)> all(opendir(folder.c_str()), closedir);
  if (!all) return errno == ENOENT ? Status::Ok() : file_error(folder);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(all.get())) names.push_back(entry->d_name);
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    struct stat st;
    if (name == "." || name == ".." || name.find(kAside) != std::string::npos ||
        std::find(left_out_.begin(), left_out_.end(), path) != left_out_.end() ||
        lstat(path.c_str(), &st) != 0)
      continue;
    // Sockets and pipes have no contents; the process that has them makes them.
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) continue;
    auto wanted = wanted_.find(path);
    if (wanted == wanted_.end()) {
      if (Status s = set_aside(path); !s.ok()) return s;
    } else if (S_ISDIR(st.st_mode) && wanted->second.kind == StoredFile::kFolder) {
      if (Status s = set_others_aside(path); !s.ok()) return s;
    }
  }
  return Status::Ok();
}

Status FilesPutBack::put_folder(const StoredFile& f) {
  struct stat st;
  if (lstat(f.path.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) {
      folder_times_.push_back(f);
      return Status::Ok();
    }
    if (Status s = set_aside(f.path); !s.ok()) return s;
  }
  if (mkdir(f.path.c_str(), 0700) != 0) return file_error(f.path);
  steps_.push_back({f.path, ""});
  folder_times_.push_back(f);
  return Status::Ok();
}

// The very file that the program had: it stays that one, for programs that know its inode (SQLite).
Status FilesPutBack::overwrite(const store::SnapshotReader& reader, const StoredFile& f) {
  if (Status s = copy_aside(f.path); !s.ok()) return s;
  Fd file(open(f.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return file_error(f.path);
  std::vector<uint8_t> wanted(kPiece), there(kPiece);
  for (uint64_t at = 0; at < f.size;) {
    const uint64_t length = std::min<uint64_t>(kPiece, f.size - at);
    const std::span<uint8_t> piece(wanted.data(), length);
    if (Status s = reader.read(f.space, at, piece); !s.ok()) return s;
    const bool same = pread(file.get(), there.data(), length, static_cast<off_t>(at)) ==
                          static_cast<ssize_t>(length) &&
                      memcmp(there.data(), wanted.data(), length) == 0;
    if (!same && pwrite(file.get(), wanted.data(), length, static_cast<off_t>(at)) !=
                     static_cast<ssize_t>(length))
      return file_error(f.path);
    at += length;
  }
  if (ftruncate(file.get(), static_cast<off_t>(f.size)) != 0) return file_error(f.path);
  begin_to_write(file.get());
  pending_.push_back({f.path, &f});
  return Status::Ok();
}

Status FilesPutBack::put_link(const StoredFile& f) {
  StoredFile now;
  const bool there = describe(f.path, &now);
  if (there && now.kind == f.kind && now.target == f.target) return Status::Ok();
  if (there)
    if (Status s = set_aside(f.path); !s.ok()) return s;
  if (symlink(f.target.c_str(), f.path.c_str()) != 0) return file_error(f.path);
  steps_.push_back({f.path, ""});
  return Status::Ok();
}

Status FilesPutBack::put(const store::SnapshotReader& reader, const StoredFile& f) {
  StoredFile now;
  const bool there = describe(f.path, &now);
  if (there && now.same_as(f)) return Status::Ok();
  if (there && now.kind == f.kind && now.dev == f.dev && now.ino == f.ino)
    return overwrite(reader, f);
  const std::string pending = f.path + ".gpuckpt-" + random_text();
  Fd file(open(pending.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return file_error(pending);
  steps_.push_back({pending, ""});
  std::vector<uint8_t> buffer(kPiece);
  for (uint64_t at = 0; at < f.size;) {
    const uint64_t length = std::min<uint64_t>(kPiece, f.size - at);
    const std::span<uint8_t> piece(buffer.data(), length);
    if (Status s = reader.read(f.space, at, piece); !s.ok()) return s;
    if (pwrite(file.get(), piece.data(), length, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(length))
      return file_error(pending);
    at += length;
  }
  begin_to_write(file.get());
  pending_.push_back({pending, &f, there});
  return Status::Ok();
}

// Another name of a file that is back.
Status FilesPutBack::put_name(const store::SnapshotReader& reader, const StoredFile& f,
                              const std::string& other_name) {
  struct stat file, now;
  if (lstat(other_name.c_str(), &file) != 0) return file_error(other_name);
  if (lstat(f.path.c_str(), &now) == 0) {
    if (now.st_dev == file.st_dev && now.st_ino == file.st_ino) return Status::Ok();
    if (Status s = set_aside(f.path); !s.ok()) return s;
  }
  if (link(other_name.c_str(), f.path.c_str()) == 0) {
    steps_.push_back({f.path, ""});
    return Status::Ok();
  }
  store::say(
      "gpuckpt: warning: %s was another name of %s, and is a file of its own now: a hard link "
      "cannot be made (%s)\n",
      f.path.c_str(), other_name.c_str(), strerror(errno));
  return put(reader, f);
}

Status FilesPutBack::finish() {
  for (const Pending& p : pending_) {
    Fd file(open(p.written.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return file_error(p.written);
    give_attributes(file.get(), *p.file);
    // A database that is restored relies on what it had made durable.
    if (fsync(file.get()) != 0) return file_error(p.written);
  }
  for (const Pending& p : pending_) {
    const std::string& path = p.file->path;
    if (p.written == path) continue;
    if (p.replaces)
      if (Status s = set_aside(path); !s.ok()) return s;
    if (rename(p.written.c_str(), path.c_str()) != 0) return file_error(path);
    steps_.push_back({path, ""});
  }
  written_ += pending_.size();
  pending_.clear();
  return Status::Ok();
}

// What was set aside may be a name of a file that is overwritten: it becomes a name of the copy of
// what that file held.
Status FilesPutBack::part_names() {
  for (Step& step : steps_) {
    struct stat st;
    if (step.copied || step.before.empty() || lstat(step.now.c_str(), &st) != 0) continue;
    auto found = overwritten_.find({st.st_dev, st.st_ino});
    if (!S_ISREG(st.st_mode) || found == overwritten_.end()) continue;
    const Step& overwritten = steps_[found->second];
    const std::string pending = step.now + "." + random_text();
    if (link(overwritten.now.c_str(), pending.c_str()) != 0) return file_error(pending);
    if (rename(pending.c_str(), step.now.c_str()) != 0) return file_error(step.now);
    step.file = overwritten.before;
  }
  return Status::Ok();
}

Status FilesPutBack::put_files(const store::SnapshotReader& reader,
                               const std::vector<std::string>& except) {
  const auto left_alone = [&](const std::string& path) {
    return std::find(except.begin(), except.end(), path) != except.end();
  };
  // Of a file with several names, the contents are put back by one: the first that still is that
  // file, else the first.
  std::map<std::string, std::pair<const StoredFile*, bool>> of_several;
  for (const auto& [path, f] : wanted_) {
    if (f.links < 2 || left_alone(path)) continue;
    auto& [name, is_that_file] = of_several[f.key()];
    if (name && is_that_file) continue;
    struct stat st;
    const bool that_file = lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
                           st.st_dev == f.dev && st.st_ino == f.ino;
    if (!name || that_file) name = &f, is_that_file = that_file;
  }
  std::vector<const StoredFile*> names;
  // Sorted by path: folders come before what is in them.
  for (const auto& [path, f] : wanted_) {
    if (left_alone(path)) continue;
    Status s;
    if (f.kind == StoredFile::kFolder)
      s = put_folder(f);
    else if (f.kind == StoredFile::kLink)
      s = put_link(f);
    else if (f.links > 1 && of_several[f.key()].first != &f)
      names.push_back(&f);
    else
      s = put(reader, f);
    if (!s.ok()) return s;
  }
  if (Status s = finish(); !s.ok()) return s;
  for (const StoredFile* f : names)
    if (Status s = put_name(reader, *f, of_several[f->key()].first->path); !s.ok()) return s;
  if (Status s = finish(); !s.ok()) return s;
  return part_names();
}

Status FilesPutBack::run(const store::SnapshotReader& reader, const nlohmann::json& blob,
                         const std::vector<std::string>& except) {
  folders_ = paths_in(blob, "folders");
  left_out_ = paths_in(blob, "left_out");
  const mode_t before = umask(077);  // of what is set aside
  struct Back {
    mode_t mask;
    ~Back() { umask(mask); }
  } back{before};
  std::vector<StoredFile> files = stored_files(blob);
  for (const StoredFile& f : files) wanted_[f.path] = f;
  for (const std::string& folder : folders_)
    if (Status s = set_others_aside(folder); !s.ok()) return s;
  if (Status s = put_files(reader, except); !s.ok()) return s;
  // From the inside out: each file that came back has changed its folder's time.
  for (auto f = folder_times_.rbegin(); f != folder_times_.rend(); ++f) {
    Fd folder(open(f->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return file_error(f->path);
    fsync(folder.get());
    give_attributes(folder.get(), *f);
  }
  return Status::Ok();
}

void FilesPutBack::keep() {
  kept_ = true;
  if (written_) store::say("gpuckpt: %lu files are as they were at the snapshot\n", written_);
  for (const auto& [root, aside] : aside_) {
    struct stat st;
    if (lstat(aside.c_str(), &st) == 0)
      store::say("gpuckpt: what changed in %s since then is in %s\n", root.c_str(), aside.c_str());
  }
}

namespace {

// (The attributes first: the folder of the copy may go with it.)
void copy_back(const std::string& copy, const std::string& path) {
  StoredFile held;
  Fd from(open(copy.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Fd to(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!from || !to || !describe(copy, &held) ||
      !copy_bytes(from.get(), held.size, to.get(), 0, path).ok() ||
      ftruncate(to.get(), static_cast<off_t>(held.size)) != 0) {
    store::say("gpuckpt: warning: what %s held before this restore is in %s\n", path.c_str(),
               copy.c_str());
    return;
  }
  give_attributes(to.get(), held);
  unlink(copy.c_str());
}

}  // namespace

void FilesPutBack::link_back(const Step& step) {
  if (link(step.file.c_str(), step.before.c_str()) == 0)
    unlink(step.now.c_str());
  else
    rename(step.now.c_str(), step.before.c_str());
}

FilesPutBack::~FilesPutBack() {
  if (kept_) return;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->copied)
      copy_back(step->now, step->before);
    else if (!step->file.empty())
      link_back(*step);
    else if (!step->before.empty())
      rename(step->now.c_str(), step->before.c_str());
    else if (unlink(step->now.c_str()) != 0 && errno == EISDIR)
      rmdir(step->now.c_str());
  }
  std::error_code ignored;
  for (const auto& [root, aside] : aside_)
    if (fs::is_directory(aside, ignored) && !fs::is_symlink(aside, ignored)) {
      // Only folders are left in it.
      std::vector<fs::path> left;
      for (const auto& entry : fs::recursive_directory_iterator(aside, ignored))
        left.push_back(entry.path());
      for (auto path = left.rbegin(); path != left.rend(); ++path) rmdir(path->c_str());
      rmdir(aside.c_str());
    }
}

}  // namespace gpuckpt::restore
