#include "restore/files/file_keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "gpuckpt/wire.h"
#include "restore/files/unnoticed_open.h"
#include "restore/files/written_descriptors.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

constexpr uint64_t kTickNs = 20'000'000;  // a file's time may be this much older than its change
constexpr size_t kMostClones = 256;       // each is an open file

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

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

}  // namespace gpuckpt::restore
