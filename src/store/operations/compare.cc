// What differs between two snapshots. Names of chunks are compared; stored bytes are read only
// where the snapshots are in stores that name chunks differently.

#include <algorithm>
#include <set>

#include "store/format/names.h"
#include "store/store.h"

namespace gpuckpt::store {
namespace {

// Walks along the pieces of a space; a zero extent can be taken in parts.
class Walk {
 public:
  explicit Walk(std::vector<NamedExtent> pieces) : pieces_(std::move(pieces)) {}
  bool done() const { return at_ == pieces_.size(); }
  uint64_t address() const { return pieces_[at_].address; }
  uint64_t end() const { return pieces_[at_].address + pieces_[at_].length; }
  const NamedExtent& piece() const { return pieces_[at_]; }
  void skip_to(uint64_t address) {
    NamedExtent& piece = pieces_[at_];
    cut_ = address < end() && !piece.zero;
    if (address >= end()) {
      ++at_;
      return;
    }
    piece.length = end() - address;
    piece.address = address;
  }
  // Whether a part of this chunk was compared already, so that its name says nothing about the
  // rest.
  bool cut() const { return cut_; }

 private:
  std::vector<NamedExtent> pieces_;
  size_t at_ = 0;
  bool cut_ = false;
};

void add(std::vector<Difference>* out, uint64_t space, uint64_t from, uint64_t to,
         Difference::Kind kind) {
  if (from >= to) return;
  if (!out->empty()) {
    Difference& last = out->back();
    if (last.space == space && last.kind == kind && last.address + last.length == from) {
      last.length += to - from;
      return;
    }
  }
  out->push_back({space, from, to - from, kind});
}

bool same(const Walk& a, const Walk& b) {
  const NamedExtent &x = a.piece(), &y = b.piece();
  if (x.zero || y.zero) return x.zero && y.zero;
  return !a.cut() && !b.cut() && x.address == y.address && x.length == y.length && x.name == y.name;
}

void compare_space(uint64_t space, Walk a, Walk b, std::vector<Difference>* out) {
  while (!a.done() || !b.done()) {
    if (b.done() || (!a.done() && a.address() < b.address())) {
      uint64_t to = b.done() ? a.end() : std::min(a.end(), b.address());
      add(out, space, a.address(), to, Difference::kOnlyFirst);
      a.skip_to(to);
    } else if (a.done() || b.address() < a.address()) {
      uint64_t to = a.done() ? b.end() : std::min(b.end(), a.address());
      add(out, space, b.address(), to, Difference::kOnlySecond);
      b.skip_to(to);
    } else {
      uint64_t to = std::min(a.end(), b.end());
      if (!same(a, b)) add(out, space, a.address(), to, Difference::kChanged);
      a.skip_to(to);
      b.skip_to(to);
    }
  }
}

// The pieces of a space, named by `names`.
Status pieces_of(const SnapshotReader& snapshot, uint64_t space, const Names& names,
                 std::vector<NamedExtent>* out) {
  *out = snapshot.named_extents(space);
  if (snapshot.names().compare_with(names)) return Status::Ok();
  std::vector<uint8_t> bytes;
  for (NamedExtent& piece : *out) {
    if (piece.zero) continue;
    bytes.resize(piece.length);
    if (Status s = snapshot.read(space, piece.address, bytes); !s.ok()) return s;
    piece.name = names.of(bytes.data(), bytes.size());
  }
  return Status::Ok();
}

}  // namespace

Status compare(const SnapshotReader& first, const SnapshotReader& second,
               std::vector<Difference>* out) {
  std::set<uint64_t> spaces;
  for (uint64_t space : first.spaces()) spaces.insert(space);
  for (uint64_t space : second.spaces()) spaces.insert(space);
  out->clear();
  for (uint64_t space : spaces) {
    std::vector<NamedExtent> a, b;
    for (const auto& [snapshot, pieces] : {std::pair{&first, &a}, std::pair{&second, &b}})
      if (Status s = pieces_of(*snapshot, space, first.names(), pieces); !s.ok()) return s;
    compare_space(space, Walk(std::move(a)), Walk(std::move(b)), out);
  }
  return Status::Ok();
}

Status compare_blobs(const SnapshotReader& first, const SnapshotReader& second,
                     std::vector<std::string>* out) {
  std::set<std::string> names;
  for (const std::string& name : first.blobs()) names.insert(name);
  for (const std::string& name : second.blobs()) names.insert(name);
  for (const std::string& name : names) {
    std::vector<uint8_t> a, b;
    Status sa = first.blob(name, &a), sb = second.blob(name, &b);
    for (const Status& s : {sa, sb}) {
      if (!s.ok() && s.code() != kExitAbsent) return s;
    }
    if (sa.ok() != sb.ok() || a != b) out->push_back(name);
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
